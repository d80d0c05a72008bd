"""`trainer.accelerator`: the names that subclasses and client code use, as a view on the trainer's strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..arguments.process_state import ProcessState
from ..arguments.settings import LoaderSettings
from ..checkpoint.transformers.write import write_torch_file
from ..checkpoint.weights import save_model
from ..core import accelerator
from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.tree import tree_map
from ..strategies.placement import is_placed, move
from .accelerator_checkpoints import CheckpointFunctions
from .accelerator_processes import ProcessFunctions
from .accelerator_state import GradientStateView, StateView, initialize_accelerate
from .install import are_names_installed
from .legacy_names import NoSuchNameError
from .prepare_loader import shard_loader


class AcceleratorView(CheckpointFunctions, ProcessFunctions):
    """A view that offers accelerate's names; it owns nothing.

    >>> trainer.accelerator.gather_for_metrics(scores)  # doctest: +SKIP
    """

    # The values that accelerate has where none of its backends is in use.
    ddp_handler = deepspeed_engine_wrapped = deepspeed_plugin = fp8_backend = fp8_recipe = None
    parallelism_config = project_dir = torch_device_mesh = None
    fp8_enabled = is_fsdp2 = is_composable_parallelism_enabled = False
    step_scheduler_with_optimizer = False
    device_placement = True
    autocast_handler = init_handler = scaler_handler = profile_handler = logging_dir = project_configuration = None
    ao_recipe_handler = fp8_recipe_handler = msamp_recipe_handler = te_recipe_handler = None
    has_fp8_handler = has_lomo_optimizer = delayed_fp8_autocast = use_stateful_dataloader = False
    context_parallel_rank = tensor_parallel_rank = pipeline_parallel_rank = data_parallel_shard_rank = 0

    def __init__(self, trainer: Any) -> None:
        CheckpointFunctions.__init__(self, trainer)
        ProcessFunctions.__init__(self, trainer.args)
        self._is_triggered = False
        self.has_prepared_model = False
        self.state = StateView(trainer.args)
        self.gradient_state = GradientStateView(trainer)
        if are_names_installed():  # client code may expect that the trainer has created an Accelerator
            initialize_accelerate(use_cpu=trainer.args.use_cpu)

    # ---- processes -----------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self._trainer.strategy.device

    @property
    def is_main_process(self) -> bool:
        return self._trainer.is_world_process_zero()

    @property
    def is_local_main_process(self) -> bool:
        return self._trainer.is_local_process_zero()

    multi_device = ProcessState.use_distributed

    def wait_for_everyone(self) -> None:
        self._trainer.strategy.barrier()

    def set_trigger(self) -> None:
        """Make the next `check_trigger` of all processes return True."""
        self._is_triggered = True

    def check_trigger(self) -> bool:
        """Return whether any process has called `set_trigger` since the last check; every process has to ask."""
        own, self._is_triggered = torch.tensor(float(self._is_triggered), device=self.device), False
        return bool(self._trainer.strategy.sum(own) > 0)

    # ---- a step --------------------------------------------------------------------------------------

    @property
    def sync_gradients(self) -> bool:
        return self.gradient_state.sync_gradients

    @property
    def gradient_accumulation_steps(self) -> int:
        return self._trainer.current_gradient_accumulation_steps

    @property
    def mixed_precision(self) -> str:
        return self._trainer.args.mixed_precision

    @property
    def native_amp(self) -> bool:
        return self.mixed_precision != "no"

    @property
    def scaler(self) -> Any:
        return getattr(self._trainer.precision, "scaler", None)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the last step overflowed; only float16 does."""
        return getattr(self._trainer.precision, "skipped_last_step", False)

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        self._trainer.precision.backward(loss)

    def unscale_gradients(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._trainer.precision.unscale(self._trainer.optimizer if optimizer is None else optimizer)

    def clip_grad_norm_(self, parameters: Iterable[nn.Parameter], max_norm: float, norm_type: int = 2) -> Tensor:
        if norm_type != 2:
            return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return self._trainer.strategy.clip(gradients, max_norm)

    def clip_grad_value_(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        nn.utils.clip_grad_value_(parameters, clip_value)

    def autocast(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        return self._trainer.precision.autocast()

    @contextmanager
    def accumulate(self, *models: nn.Module) -> Iterator[None]:
        """Exchange gradients between processes when the trainer's step does; in a custom loop, always."""
        with self._trainer.strategy.accumulate(models[0], sync=self.sync_gradients):
            yield

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        return self._trainer.strategy.accumulate(model, sync=False)

    # ---- numbers of all processes --------------------------------------------------------------------

    def gather(self, tensor: Any) -> Any:
        return self._trainer.strategy.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        if not use_gather_object or self.num_processes == 1:
            return self._trainer.strategy.gather(input_data)
        return [one for of_process in self._trainer.strategy.gather_objects(input_data) for one in of_process]

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False) -> Any:
        """Pad tensors in dimension `dim` to the length of the longest of all processes."""
        if self.num_processes == 1:
            return tensor
        return tree_map(
            lambda leaf: self._pad(leaf, dim, pad_index, pad_first) if isinstance(leaf, Tensor) else leaf, tensor
        )

    def _pad(self, tensor: Tensor, dim: int, pad_index: int, pad_first: bool) -> Tensor:
        if not -tensor.ndim <= dim < tensor.ndim:
            return tensor
        own = tensor.shape[dim]
        longest = int(self.gather(torch.tensor([own], device=self.device)).max())
        missing = (longest - own, 0) if pad_first else (0, longest - own)
        return F.pad(tensor, [0, 0] * (tensor.ndim - 1 - dim % tensor.ndim) + list(missing), value=pad_index)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        if reduction == "none":
            return tensor
        combine = self._trainer.strategy.mean if reduction == "mean" else self._trainer.strategy.sum
        return tree_map(lambda leaf: combine(leaf) * scale if isinstance(leaf, Tensor) else leaf, tensor)

    # ---- models, optimizers, loaders -----------------------------------------------------------------

    @property
    def _models(self) -> list[nn.Module]:
        return [self._trainer.model_wrapped]

    def prepare(self, *parts: Any, **kwargs: Any) -> Any:
        """Move models to the device and replicate them, shard loaders; return optimizers and schedules unchanged."""
        prepared = tuple(self._prepare(part) for part in parts)
        return prepared[0] if len(prepared) == 1 else prepared

    def _prepare(self, part: Any) -> Any:
        if isinstance(part, nn.Module):
            return self.prepare_model(part)
        return self.prepare_data_loader(part) if isinstance(part, DataLoader) else part

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        self.has_prepared_model = True
        if device_placement is not False and not is_placed(model):
            move(model, self.device)
        return model if evaluation_mode else self._trainer.strategy.place(model)

    def prepare_data_loader(self, data_loader: DataLoader[Any], *args: Any, **kwargs: Any) -> DataLoader[Any]:
        return shard_loader(data_loader, LoaderSettings.of(self._trainer.args))

    def prepare_optimizer(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer

    def prepare_scheduler(self, scheduler: Any) -> Any:
        return scheduler

    def unwrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Return the model inside DistributedDataParallel and torch.compile."""
        inner = getattr(model, "module", None)
        if isinstance(inner, nn.Module) and type(model).__name__ == "DistributedDataParallel":
            return self.unwrap_model(inner)
        compiled = getattr(model, "_orig_mod", None)
        return compiled if isinstance(compiled, nn.Module) else model

    def verify_device_map(self, model: nn.Module) -> bool:
        """Return whether the model, or a part of it, is spread over several devices."""
        return any(len(getattr(part, "hf_device_map", None) or ()) > 1 for part in model.modules())

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, Any]:
        return (self.unwrap_model(model) if unwrap else model).state_dict()

    def free_memory(self, *objects: Any) -> list[None]:
        """Empty the cache of the device. Prepared objects need no release, since none are kept."""
        accelerator.empty_cache(self.device)
        return [None for _ in objects]

    clear = free_memory

    @property
    def dataloader_config(self) -> Any:
        return self._trainer.args.accelerator_config

    @property
    def even_batches(self) -> bool:
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        self.dataloader_config.even_batches = even

    @property
    def split_batches(self) -> bool:
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        return self.dataloader_config.dispatch_batches

    @property
    def use_seedable_sampler(self) -> bool:
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        return self.dataloader_config.non_blocking

    # ---- files and trackers --------------------------------------------------------------------------

    @property
    def should_save_model(self) -> bool:
        return True

    def save(self, obj: Any, f: str | Path, save_on_each_node: bool = False, safe_serialization: bool = False) -> None:
        """Write tensors and plain values, on the main process, as `torch.save` does or as safetensors.

        An object that `torch.load` could not read without running its code is refused.
        """
        if not (self.is_local_main_process if save_on_each_node else self.is_main_process):
            return
        if safe_serialization:
            save_file({name: value.contiguous() for name, value in obj.items()}, str(f))
        else:
            write_torch_file(Path(f), obj)

    def save_model(self, model: nn.Module, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
        """Write a model on the main process; sizes of files and pickles cannot be chosen."""
        if self.is_main_process:
            save_model(self.unwrap_model(model), Path(save_directory))

    @property
    def log_with(self) -> list[str]:
        return self._trainer.args.report_to

    @property
    def trackers(self) -> list[Any]:
        """The callbacks of trackers."""
        return [one for one in self._trainer.callback_handler.callbacks if getattr(one, "tracker", None)]

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """Return the callback of a tracker by its name in `report_to`; `unwrap` returns what it logs to."""
        for callback in self.trackers:
            if callback.tracker == name:
                return callback._sink if unwrap else callback
        raise ConfigError(
            what=f"there is no tracker {name!r}",
            why=f"report_to selects {', '.join(map(repr, self.log_with)) or 'none'}",
            fix=f"set report_to={name!r}",
        )

    def init_trackers(self, project_name: str, config: Any = None, init_kwargs: Any = None) -> None:
        note_once("accelerator.init_trackers has no effect: report_to selects the trackers, which are callbacks")

    def log(self, values: dict[str, Any], step: int | None = None, log_kwargs: Any = None) -> None:
        """Log through the trainer."""
        self._trainer.log(dict(values))

    def end_training(self) -> None:
        """Do nothing: trackers end with `on_train_end`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_trainer" not in vars(self):
            raise AttributeError(name)
        raise NoSuchNameError(
            what=f"trainer.accelerator has no {name!r}",
            why="it is a view on Ostinato's own parts, with the names in common use and not all of accelerate's",
            fix=_REPLACEMENTS.get(
                name, "use trainer.strategy (device, place, gather, sum, mean, barrier) or trainer.precision instead"
            ),
        )


_REPLACEMENTS = {
    "_prepare_deepspeed": "DeepSpeed is not supported: train with torchrun",
    "mpu": "sequences are not split over processes: trainer.get_sp_size() is 1",
    "save_iteration": "trainer.state.global_step numbers checkpoints",
    "step": "trainer.state.global_step counts optimizer steps",
    "flag_tensor": "use set_trigger and check_trigger",
    "rng_types": "every process seeds its own generators; trainer.args.seed",
    "trigger_sync_in_backward": "trainer.strategy.accumulate(model, sync=True) exchanges gradients in a backward pass",
    "lomo_backward": "set optim='lomo', and call trainer.train()",
    "data_parallel_rank": "trainer.args.process_index",
    "deepspeed_ulysses_dl_adapter": "sequences are not split over processes: trainer.get_sp_size() is 1",
}  # fmt: skip
