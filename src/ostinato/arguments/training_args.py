"""`TrainingArguments`: all arguments of a run, with the names, order and defaults of transformers."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from ..core import accelerator
from ..core.choices import HubStrategy, IntervalStrategy, OptimizerNames, ParallelMode, SaveStrategy, SchedulerType
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import LEVELS, logger, show_notices_of_all_processes
from ..core.world import World, wait_for_everyone
from .derive import derive
from .describe import describe_arguments, format_descriptions
from .extras import find_extra, shorten_names
from .fields.checkpoints import CheckpointArguments, HubArguments
from .fields.data import DataLoaderArguments, ReproducibilityArguments
from .fields.evaluation import BestModelArguments, EvaluationArguments
from .fields.extensions import Extras
from .fields.hardware import DeviceArguments, MemoryArguments, ParallelismArguments, PrecisionArguments
from .fields.optimization import GradientArguments, OptimizerArguments, RunArguments, ScheduleArguments
from .fields.reporting import LoggingArguments, ScriptArguments
from .metaclass import ArgumentsType
from .process_state import ProcessState, initialize_process_state
from .provenance import Record
from .renamed_arguments import OLD_ARGUMENTS, read_old, write_old
from .secrets import is_secret, redact
from .shard_settings import read_tensor_size
from .validate import find_problems, note_ineffective, raise_problems

if TYPE_CHECKING:  # our own arguments can be given, read and set as if they were fields

    class _ExtraArguments(Extras): ...
else:

    class _ExtraArguments: ...


# Read from the last group to the first, this is the order of the arguments.
@dataclass(repr=False)
class TrainingArguments(
    _ExtraArguments,
    ScriptArguments,
    ParallelismArguments,
    DataLoaderArguments,
    DeviceArguments,
    ReproducibilityArguments,
    BestModelArguments,
    HubArguments,
    CheckpointArguments,
    EvaluationArguments,
    LoggingArguments,
    MemoryArguments,
    PrecisionArguments,
    GradientArguments,
    OptimizerArguments,
    ScheduleArguments,
    RunArguments,
    metaclass=ArgumentsType,
):
    """The arguments of a training run.

    A dataclass may inherit from it and add fields; one that overrides `__post_init__` calls `super().__post_init__()`.
    Argument names of transformers since 4.30 are accepted, translated, and can be read.

    Args:
        *args: Arguments in the order of transformers; the first is `output_dir`.
        **kwargs: Arguments by name. `explain()` lists all of them with their meaning.

    Raises:
        ConfigError: If values are invalid or contradict one another. All problems are reported together.
        NotSupportedError: If something is requested that this library does not do. It is a `ConfigError`.

    Example:
        >>> args = TrainingArguments("out", learning_rate=1e-4, eval_strategy="epoch", use_cpu=True)
        >>> args.do_eval
        True
        >>> args = TrainingArguments("out", evaluation_strategy="epoch", no_cuda=True)  # names of transformers 4.30
        >>> args.eval_strategy == args.evaluation_strategy == "epoch"
        True
    """

    default_optim = "adamw_torch_fused"
    # Backends that are not supported. Other libraries check whether they are in use, TRL before it adds an adapter.
    deepspeed_plugin = None
    fsdp_plugin_args = None
    # For the parser: old names, and our own arguments.
    __old_spellings__ = {name: old.kind for name, old in OLD_ARGUMENTS.items()}
    __extras__ = Extras
    # Dicts that may be given as JSON; subclasses add the names of their own.
    _VALID_DICT_FIELDS = [
        "accelerator_config",
        "fsdp_config",
        "deepspeed",
        "gradient_checkpointing_kwargs",
        "lr_scheduler_kwargs",
    ]

    def __post_init__(self) -> None:
        self._check_and_derive()
        accelerator.set_current(self.device)  # what a script puts on "cuda" from here on is there too
        if self.tf32 is not None:
            accelerator.set_tf32(self.device, enabled=self.tf32)
        initialize_process_state(self)

    def _check_and_derive(self) -> None:
        """Derive and check every argument, and raise all problems together."""
        record = self._record
        record.record_changes(self)
        unreadable = derive(self)
        raise_problems([*record.problems, *unreadable, *find_problems(self)])
        note_ineffective(self)
        record.record_values(self)

    @property
    def _record(self) -> Record:
        """Return the record of where the values come from."""
        return vars(self).setdefault("_record", Record())

    def validate(self) -> None:
        """Check the present values again, after some of them were changed. `train()` does this as well.

        Raises:
            ConfigError: If values are invalid or contradict one another.

        Example:
            >>> args = TrainingArguments("out", use_cpu=True)
            >>> args.load_best_model_at_end = True
            >>> args.validate()
            Traceback (most recent call last):
            ...
            ostinato.core.errors.ConfigError: load_best_model_at_end=True with eval_strategy='no'
              why: it compares evaluations, and there are none
              fix: set eval_strategy='epoch', or eval_strategy='steps' with eval_steps
        """
        self._check_and_derive()

    def explain(self, *names: str) -> None:
        """Print the value of arguments, where it comes from and what it changes.

        Args:
            *names: The arguments to print. Default: all.

        Raises:
            ConfigError: If there is no argument of one of the names.

        Example:
            >>> TrainingArguments("out", eval_strategy="epoch", use_cpu=True).explain("do_eval")
            Arguments for scripts; most of them have no effect on the trainer.
              do_eval = True  (derived: eval_strategy='epoch' evaluates)
                  For scripts: whether to evaluate. Set by any eval_strategy other than no.
        """
        print(format_descriptions(describe_arguments(self), names))  # noqa: T201

    # --- our own arguments, and names of earlier releases ------------------------------------------------------------

    @property
    def ostinato(self) -> Extras:
        """Return the arguments that transformers does not have. To change several, assign another `Extras`."""
        return vars(self).setdefault("_extras", Extras())

    @ostinato.setter
    def ostinato(self, extras: Extras) -> None:
        vars(self)["_extras"] = extras

    if not TYPE_CHECKING:  # type checkers see the present names only

        def __getattr__(self, name: str) -> Any:
            if own := find_extra(self, name):
                return getattr(self.ostinato, own)
            if name in OLD_ARGUMENTS:
                return read_old(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            if own := find_extra(self, name):
                self.ostinato = dataclasses.replace(self.ostinato, **{own: value})
            elif name in OLD_ARGUMENTS and name not in type(self).__dataclass_fields__:
                translation = write_old(self, name, value)
                raise_problems(translation.problems)
                vars(self).update(translation.given)
                self._record.kept = {**self._record.kept, name: value}
            else:
                object.__setattr__(self, name, value)

    # --- this process and its device ---------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Return the device of this process."""
        return World.from_environment().device(use_cpu=self.use_cpu)

    @property
    def _setup_devices(self) -> torch.device:
        return self.device

    @property
    def n_gpu(self) -> int:
        """Return the number of accelerators of this process: 1, or 0 on a CPU."""
        return self._n_gpu

    @property
    def _n_gpu(self) -> int:
        return 0 if self.device.type == "cpu" else 1

    @_n_gpu.setter
    def _n_gpu(self, number: int) -> None:
        # Scripts set it to 1 to keep transformers from using DataParallel, which does not exist here.
        if number > 1:
            raise NotSupportedError(
                what=f"_n_gpu={number} is not supported",
                why="a process uses one device",
                fix=f"start {number} processes: torchrun --nproc-per-node {number} script.py",
            )

    @property
    def parallel_mode(self) -> ParallelMode:
        """Return whether several processes train together."""
        return ParallelMode.DISTRIBUTED if self.world_size > 1 else ParallelMode.NOT_PARALLEL

    @property
    def world_size(self) -> int:
        """Return the number of processes that train together."""
        return World.from_environment().size

    @property
    def process_index(self) -> int:
        """Return the rank of this process."""
        return World.from_environment().rank

    @property
    def model_parallel_size(self) -> int:
        """Return how many processes compute the same rows, each with its part of every layer (tensor parallelism)."""
        known: int | None = vars(self).get("_model_parallel_size")  # of a model that was passed divided
        return known or read_tensor_size(self.parallelism_config)

    @model_parallel_size.setter
    def model_parallel_size(self, size: int) -> None:
        vars(self)["_model_parallel_size"] = size

    @property
    def data_index(self) -> int:
        """Return the number of this process among those that compute rows of their own."""
        return self.process_index // self.model_parallel_size

    @property
    def data_size(self) -> int:
        """Return the number of processes that compute rows of their own."""
        return max(1, self.world_size // self.model_parallel_size)

    @property
    def local_process_index(self) -> int:
        """Return the rank of this process on its machine."""
        return World.from_environment().local_rank

    @property
    def distributed_state(self) -> ProcessState:
        """Return the same facts under the names of accelerate's state."""
        return ProcessState(self)

    @property
    def place_model_on_device(self) -> bool | None:
        """Return whether the trainer moves the model to the device; None: the trainer decides. For subclasses."""
        return None

    @property
    def mixed_precision(self) -> str:
        """Return `bf16`, `fp16` or `no`."""
        return "bf16" if self.bf16 else "fp16" if self.fp16 else "no"

    @property
    def _no_sync_in_gradient_accumulation(self) -> bool:
        return True

    @property
    def ddp_timeout_delta(self) -> timedelta:
        """Return how long a process waits for the others."""
        return timedelta(seconds=self.ddp_timeout)

    @contextmanager
    def main_process_first(self, local: bool = True, desc: str = "work") -> Iterator[None]:
        """Run a block in the main process first; the other processes run it afterwards, and can use its cache.

        Args:
            local: Whether the first process of every machine goes first, or only the first of all.
            desc: What the block does, for debug logs.

        Yields:
            Nothing.

        Example:
            >>> args = TrainingArguments("out", use_cpu=True)
            >>> with args.main_process_first(desc="tokenization"):
            ...     pass
        """
        world = World.from_environment()
        goes_first = world.is_local_main if local else world.is_main
        if not goes_first:
            logger.debug("process %d waits for the main process to finish: %s", world.rank, desc)
            self._wait_for_everyone()
        try:
            yield
        finally:
            if goes_first:  # also when the work failed: the others must not wait for ever
                self._wait_for_everyone()

    def _wait_for_everyone(self) -> None:
        wait_for_everyone(self.device, backend=self.ddp_backend, timeout_seconds=self.ddp_timeout)

    # --- what follows from the arguments -----------------------------------------------------------------------------

    @property
    def train_batch_size(self) -> int:
        """Return the number of rows per training micro-batch of this process."""
        return self._share_of_batch(self.per_device_train_batch_size)

    @property
    def eval_batch_size(self) -> int:
        """Return the number of rows per evaluation batch of this process."""
        return self._share_of_batch(self.per_device_eval_batch_size)

    def _share_of_batch(self, rows: int) -> int:
        """Return this process's rows of a batch, which `split_batches` divides among all processes."""
        is_split = getattr(self.accelerator_config, "split_batches", False)
        return rows // self.data_size if is_split else rows

    @property
    def should_log(self) -> bool:
        """Return whether this process logs."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_save(self) -> bool:
        """Return whether this process writes files."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    def get_process_log_level(self) -> int:
        """Return the log level of this process, as a number of Python's `logging`."""
        level = self.log_level if self.should_log else self.log_level_replica
        # passive: the present level. Scripts mean that of transformers' logger, if transformers is imported.
        source = logging.getLogger("transformers") if "transformers" in sys.modules else logger
        return LEVELS.get(level) or source.getEffectiveLevel()

    def apply_log_level(self) -> None:
        """Set the level of this library's logger to `log_level`, or to `log_level_replica` in other processes.

        Example:
            >>> TrainingArguments("out", log_level="info", use_cpu=True).apply_log_level()
        """
        level = LEVELS.get(self.log_level if self.should_log else self.log_level_replica)
        if level is not None and (self.should_log or self._record.origins.get("log_level_replica")):
            logger.setLevel(level)
            if not self.should_log:  # only if given: otherwise every process would print every line
                show_notices_of_all_processes()

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return the number of warmup steps.

        Args:
            num_training_steps: All steps of the run, of which `warmup_steps` may be a fraction.

        Returns:
            The number of steps in which the learning rate rises.

        Example:
            >>> TrainingArguments("out", warmup_steps=0.1, use_cpu=True).get_warmup_steps(33)
            4
        """
        is_fraction = self.warmup_steps < 1
        return math.ceil(num_training_steps * self.warmup_steps) if is_fraction else int(self.warmup_steps)

    # --- as plain data -----------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return every argument as plain data. Tokens, keys and passwords are replaced by their names.

        Arguments that transformers does not have are named `ostinato.NAME`.
        """
        names = (field.name for field in dataclasses.fields(self) if field.init)
        return {
            name: redact(name) if name.endswith("_token") or is_secret(name) else _to_plain(getattr(self, name))
            for name in names
        }

    def to_json_string(self) -> str:
        """Return every argument as JSON. Tokens, keys and passwords are replaced by their names."""
        return json.dumps(self.to_dict(), indent=2, default=str)

    def to_sanitized_dict(self) -> dict[str, Any]:
        """Return every argument as a number, a bool or a string, for TensorBoard's hyperparameters."""
        content = {
            **self.to_dict(),
            "train_batch_size": self.train_batch_size,
            "eval_batch_size": self.eval_batch_size,
        }
        simple = (bool, int, float, str, torch.Tensor)
        return {name: value if isinstance(value, simple) else str(value) for name, value in content.items()}

    def __str__(self) -> str:
        lines = "".join(f"    {name}={value!r},\n" for name, value in shorten_names(self, self.to_dict()).items())
        return f"{type(self).__name__}(\n{lines})"

    __repr__ = __str__

    # --- change several at once --------------------------------------------------------------------------------------

    def _change(self, **values: Any) -> TrainingArguments:
        """Set several arguments; if they are refused, set none."""
        before = {**vars(self), "_record": self._record.copy()}
        vars(self).update(values)
        try:
            self._check_and_derive()
        except ConfigError:
            vars(self).update(before)
            raise
        return self

    def set_training(
        self,
        learning_rate: float = 5e-5,
        batch_size: int = 8,
        weight_decay: float = 0,
        num_epochs: float = 3,
        max_steps: int = -1,
        gradient_accumulation_steps: int = 1,
        seed: int = 42,
        gradient_checkpointing: bool = False,
    ) -> TrainingArguments:
        """Set the arguments of training; those left out return to their defaults.

        Args:
            learning_rate: Learning rate after warmup.
            batch_size: Rows per micro-batch and process.
            weight_decay: Weight decay.
            num_epochs: Passes over the training data.
            max_steps: Optimizer steps; -1: `num_epochs` decides.
            gradient_accumulation_steps: Micro-batches per optimizer step.
            seed: Seed of every random choice.
            gradient_checkpointing: Whether activations are recomputed in backward.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> args = TrainingArguments("out", use_cpu=True).set_training(learning_rate=1e-4, batch_size=32)
            >>> args.per_device_train_batch_size
            32
        """
        return self._change(
            do_train=True,
            learning_rate=learning_rate,
            per_device_train_batch_size=batch_size,
            weight_decay=weight_decay,
            num_train_epochs=num_epochs,
            max_steps=max_steps,
            gradient_accumulation_steps=gradient_accumulation_steps,
            seed=seed,
            gradient_checkpointing=gradient_checkpointing,
        )

    def set_evaluate(
        self,
        strategy: str | IntervalStrategy = "no",
        steps: int = 500,
        batch_size: int = 8,
        accumulation_steps: int | None = None,
        delay: float | None = None,
        loss_only: bool = False,
    ) -> TrainingArguments:
        """Set the arguments of evaluation; those left out return to their defaults.

        Args:
            strategy: When to evaluate: `no`, `steps` or `epoch`.
            steps: Steps between two evaluations.
            batch_size: Rows per batch and process.
            accumulation_steps: Accepted for compatibility.
            delay: Steps or epochs before the first evaluation.
            loss_only: Whether only the loss is computed.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> args = TrainingArguments("out", use_cpu=True).set_evaluate(strategy="steps", steps=100)
            >>> args.eval_steps
            100
        """
        _check_steps(strategy, steps)
        return self._change(
            do_eval=False,  # set again by any strategy other than "no"
            eval_strategy=strategy,
            eval_steps=steps,
            per_device_eval_batch_size=batch_size,
            eval_accumulation_steps=accumulation_steps,
            eval_delay=delay,
            prediction_loss_only=loss_only,
        )

    def set_testing(self, batch_size: int = 8, loss_only: bool = False) -> TrainingArguments:
        """Set the arguments of prediction.

        Args:
            batch_size: Rows per batch and process.
            loss_only: Whether only the loss is computed.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_testing(batch_size=32).do_predict
            True
        """
        return self._change(do_predict=True, per_device_eval_batch_size=batch_size, prediction_loss_only=loss_only)

    def set_save(
        self,
        strategy: str | SaveStrategy = "steps",
        steps: int = 500,
        total_limit: int | None = None,
        on_each_node: bool = False,
    ) -> TrainingArguments:
        """Set the arguments of checkpoints; those left out return to their defaults.

        Args:
            strategy: When to save: `no`, `steps`, `epoch` or `best`.
            steps: Steps between two checkpoints.
            total_limit: Number of checkpoints to keep.
            on_each_node: Whether every machine writes checkpoints.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_save(strategy="steps", steps=100).save_steps
            100
        """
        _check_steps(strategy, steps)
        return self._change(
            save_strategy=strategy, save_steps=steps, save_total_limit=total_limit, save_on_each_node=on_each_node
        )

    def set_logging(
        self,
        strategy: str | IntervalStrategy = "steps",
        steps: int = 500,
        report_to: str | list[str] = "none",
        level: str = "passive",
        first_step: bool = False,
        nan_inf_filter: bool = False,
        on_each_node: bool = False,
        replica_level: str = "passive",
    ) -> TrainingArguments:
        """Set the arguments of logging; those left out take the values of the signature.

        Args:
            strategy: When to log: `no`, `steps` or `epoch`.
            steps: Steps between two logs.
            report_to: Experiment trackers that receive the logs.
            level: Log level of the main process of a machine.
            first_step: Whether the first step is logged, too.
            nan_inf_filter: Whether NaN and infinite losses are excluded from the logged mean.
            on_each_node: Whether one process of each machine logs.
            replica_level: Log level of every other process.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_logging(strategy="steps", steps=100).logging_steps
            100
        """
        _check_steps(strategy, steps)
        return self._change(
            logging_strategy=strategy,
            logging_steps=steps,
            report_to=report_to,
            log_level=level,
            logging_first_step=first_step,
            logging_nan_inf_filter=nan_inf_filter,
            log_on_each_node=on_each_node,
            log_level_replica=replica_level,
        )

    def set_push_to_hub(
        self,
        model_id: str,
        strategy: str | HubStrategy = "every_save",
        token: str | None = None,
        private_repo: bool | None = None,
        always_push: bool = False,
        revision: str | None = None,
    ) -> TrainingArguments:
        """Upload the model to the hub, and set the arguments of uploads.

        Args:
            model_id: Repository, as `owner/name`.
            strategy: What is uploaded, and when.
            token: Token for uploads. Default: the one of `hf auth login`.
            private_repo: Whether a newly created repository is private.
            always_push: Whether to start an upload while another one runs.
            revision: Branch, tag or commit to upload to.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_push_to_hub("me/model").push_to_hub
            True
        """
        return self._change(
            push_to_hub=True,
            hub_model_id=model_id,
            hub_strategy=strategy,
            hub_token=token,
            hub_private_repo=private_repo,
            hub_always_push=always_push,
            hub_revision=revision,
        )

    def set_optimizer(
        self,
        name: str | OptimizerNames = "adamw_torch",
        learning_rate: float = 5e-5,
        weight_decay: float = 0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        args: str | None = None,
    ) -> TrainingArguments:
        """Set the arguments of the optimizer; those left out take the values of the signature.

        Args:
            name: Name of the optimizer.
            learning_rate: Learning rate after warmup.
            weight_decay: Weight decay.
            beta1: Decay rate of the mean of gradients in Adam-like optimizers.
            beta2: Decay rate of the mean of squared gradients in Adam-like optimizers.
            epsilon: Added to the denominator of an Adam-like update.
            args: Further arguments of the optimizer, as `name=value,name=value`.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_optimizer(name="sgd", learning_rate=0.1).learning_rate
            0.1
        """
        return self._change(
            optim=name,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            adam_beta1=beta1,
            adam_beta2=beta2,
            adam_epsilon=epsilon,
            optim_args=args,
        )

    def set_lr_scheduler(
        self,
        name: str | SchedulerType = "linear",
        num_epochs: float = 3.0,
        max_steps: int = -1,
        warmup_steps: float = 0,
    ) -> TrainingArguments:
        """Set the arguments of the learning rate schedule; those left out return to their defaults.

        Args:
            name: Shape of the learning rate after warmup.
            num_epochs: Passes over the training data.
            max_steps: Optimizer steps; -1: `num_epochs` decides.
            warmup_steps: Steps in which the learning rate rises; below 1: a fraction of all steps.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_lr_scheduler(name="cosine", warmup_steps=0.05).warmup_steps
            0.05
        """
        return self._change(
            lr_scheduler_type=name, num_train_epochs=num_epochs, max_steps=max_steps, warmup_steps=warmup_steps
        )

    def set_dataloader(
        self,
        train_batch_size: int = 8,
        eval_batch_size: int = 8,
        drop_last: bool = False,
        num_workers: int = 0,
        pin_memory: bool = True,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        multiprocessing_context: str | None = None,
        in_order: bool = True,
        auto_find_batch_size: bool = False,
        ignore_data_skip: bool = False,
        sampler_seed: int | None = None,
    ) -> TrainingArguments:
        """Set the arguments of data loading; those left out return to their defaults.

        Args:
            train_batch_size: Rows per training micro-batch and process.
            eval_batch_size: Rows per evaluation batch and process.
            drop_last: Whether a last batch that is not full is dropped.
            num_workers: Worker processes.
            pin_memory: Whether batches are kept in pinned memory.
            persistent_workers: Whether workers are kept between epochs.
            prefetch_factor: Batches that each worker prepares in advance.
            multiprocessing_context: How workers are started.
            in_order: Whether batches keep their order.
            auto_find_batch_size: Go on with smaller micro-batches when memory runs out in training.
            ignore_data_skip: Whether a resumed epoch starts its data again.
            sampler_seed: Seed of the order of training data.

        Returns:
            These arguments, changed.

        Raises:
            ConfigError: If a value is invalid or contradicts another argument. Nothing is changed then.

        Example:
            >>> TrainingArguments("out", use_cpu=True).set_dataloader(train_batch_size=16).train_batch_size
            16
        """
        return self._change(
            per_device_train_batch_size=train_batch_size,
            per_device_eval_batch_size=eval_batch_size,
            dataloader_drop_last=drop_last,
            dataloader_num_workers=num_workers,
            dataloader_pin_memory=pin_memory,
            dataloader_persistent_workers=persistent_workers,
            dataloader_prefetch_factor=prefetch_factor,
            dataloader_multiprocessing_context=multiprocessing_context,
            dataloader_in_order=in_order,
            auto_find_batch_size=auto_find_batch_size,
            ignore_data_skip=ignore_data_skip,
            data_seed=sampler_seed,
        )


def _check_steps(strategy: str | Enum, steps: float) -> None:
    if strategy == IntervalStrategy.STEPS.value and steps <= 0:
        raise ConfigError(
            what=f"strategy='steps' with steps={steps!r}",
            why="it is repeated after a positive number of steps",
            fix="set steps above 0, or strategy='no'",
        )


def _to_plain(value: Any) -> Any:
    """Convert enums, dtypes and objects with `to_dict` to plain data, also inside lists and dicts."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return type(value)(_to_plain(item) for item in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: redact(key) if is_secret(str(key)) else _to_plain(item) for key, item in value.items()}
    to_dict = getattr(value, "to_dict", None)
    return to_dict() if callable(to_dict) and not isinstance(value, type) else value
