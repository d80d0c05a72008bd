"""`trainer.plan()`: collect what a training run will do, without computing or writing anything."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from ..arguments.settings import LoaderSettings, RunPlanSettings, SaveSettings, ScheduleSettings
from ..arguments.shard_settings import ShardSettings
from ..callbacks.early_stopping import EarlyStoppingCallback
from ..checkpoint import space
from ..core.choices import IntervalStrategy, SaveStrategy, SchedulerType
from ..core.state import TrainerState
from ..core.tree import has_length
from ..core.world import World
from ..data.batching.split_by_length import PaddingMeter, splits_steps
from ..data.epoch_position import build_first_schedule, samples_at
from ..data.eval_set import EvalSet, unwrap_eval_set
from ..data.mixture import convert_to_mixture
from ..engine import guarded_step, loader_plan
from ..engine.run import Plan
from ..evaluation import request
from ..optim import schedulers
from . import eval_dry_run, explain_batch, metric_preview
from .exception_notes import get_callable_name
from .hosts import PlanHost
from .memory_plan import Layout, MemoryPlan, measure_layout
from .run_plan import (
    BatchPlan,
    Checkpoints,
    Computing,
    Duration,
    Evaluations,
    Length,
    Logs,
    Rate,
    RunPlan,
    Schedule,
    Weights,
)

_MAX_ROWS_READ = 256  # to measure the padding of batches
_MIN_SAVED_SHARE = 0.05


def build_run_plan(trainer: PlanHost) -> RunPlan:
    """Return what `train()` would do now."""
    settings = RunPlanSettings.of(trainer.args)
    with explain_batch.preserve_everything(trainer):
        trainer._train_batch_size = settings.train_batch_size
        loader = trainer.get_train_dataloader()
        plan = loader_plan.plan_run(trainer, loader)
        intervals = TrainerState()
        intervals.compute_steps(trainer.args, plan.max_steps)
        evaluations = _plan_evaluations(trainer, plan, intervals)
        checkpoints = _plan_checkpoints(trainer, plan, intervals, evaluations.count)
        return RunPlan(
            model=trainer._model_name,
            length=_plan_length(trainer, plan, loader),
            batch=_plan_batch(trainer, plan, loader),
            weights=_plan_weights(trainer),
            schedule=_plan_schedule(trainer, plan.max_steps),
            computing=_plan_computing(trainer),
            evaluations=evaluations,
            checkpoints=checkpoints,
            logs=_plan_logs(trainer, plan, intervals),
            duration=_estimate_duration(trainer, plan, evaluations, checkpoints),
            memory=_plan_memory(trainer),
            callbacks=_list_callbacks(trainer),
            arguments=dict(settings.arguments),
            remarks=_find_remarks(trainer, plan, intervals, checkpoints),
        )


# ---- length and batches ---------------------------------------------------------------------------------------------


def _plan_length(trainer: PlanHost, plan: Plan, loader: Any) -> Length:
    known = has_length(loader)
    per_epoch = max(-(-plan.batches_per_epoch // plan.accumulation), 1) if known else None
    epochs = None if per_epoch is None else plan.max_steps / per_epoch  # the last epoch may be incomplete
    settings = RunPlanSettings.of(trainer.args)
    if plan.varying is not None and settings.max_steps <= 0:
        epochs = settings.epochs
    return Length(
        steps=plan.max_steps,
        rows=loader_plan.count_rows_per_epoch(trainer, loader) if known else None,
        epochs=None if epochs is None else round(float(epochs), 2),
        steps_per_epoch=per_epoch,
    )


def _plan_batch(trainer: PlanHost, plan: Plan, loader: Any) -> BatchPlan:
    settings = LoaderSettings.of(trainer.args)
    meter = _measure_padding(trainer, plan, loader)
    return BatchPlan(
        rows=loader_plan.count_rows_per_update(trainer, loader, len(loader) if has_length(loader) else None),
        per_device=RunPlanSettings.of(trainer.args).train_batch_size,
        micro_batches=settings.accumulation,
        processes=settings.world_size,
        cut=_describe_cut(trainer, loader),
        order=_describe_order(trainer),
        padding=_compute_padding_share(meter, cut=settings.splits_by_length),
        saved_by_cutting=meter.saved if meter.saved >= _MIN_SAVED_SHARE and not settings.splits_by_length else None,
    )


def _compute_padding_share(meter: PaddingMeter, *, cut: bool) -> float | None:
    """Return the share of padding in the tokens of the batches."""
    tokens = meter.split if cut else meter.padded
    return 1 - meter.real / tokens if tokens else None


def _describe_cut(trainer: PlanHost, loader: Any) -> str:
    settings = LoaderSettings.of(trainer.args)
    if settings.packs:
        return "concatenated without padding (packing=True)"
    if splits_steps(loader):
        return "split into micro-batches by length (split_by_length=True)"
    if settings.max_tokens is not None:
        return f"as many as fit {settings.max_tokens:,} tokens (max_tokens_per_batch)"
    return "the rows of your own batches" if loader_plan.has_own_batches(trainer, loader) else ""


def _describe_order(trainer: PlanHost) -> str:
    if trainer.sampler is not None or trainer.batch_sampler is not None:
        return f"{get_callable_name(trainer.sampler or trainer.batch_sampler)}, passed by you"
    words = {"random": "shuffled in every epoch", "sequential": "as stored"}
    sampling = LoaderSettings.of(trainer.args).sampling
    return words.get(sampling, sampling)


def _measure_padding(trainer: PlanHost, plan: Plan, loader: Any) -> PaddingMeter:
    """Measure the padding of the first batches, where their rows are known; rows are read and not collated."""
    meter, size = PaddingMeter(), RunPlanSettings.of(trainer.args).train_batch_size
    if LoaderSettings.of(trainer.args).packs:
        return meter
    try:
        dataset, schedules = convert_to_mixture(trainer.train_dataset), build_first_schedule(loader, plan.accumulation)
        for step in range(1, min(plan.max_steps, max(_MAX_ROWS_READ // plan.accumulation // size, 1)) + 1):
            numbers = samples_at(loader, schedules, step, plan.max_steps)[:_MAX_ROWS_READ]
            for start in range(0, len(numbers), size):
                meter.add([dataset[number] for number in numbers[start : start + size]])
    except Exception:  # the order is unknown, or rows cannot be read
        return PaddingMeter()
    return meter


# ---- learning and computing -----------------------------------------------------------------------------------------


def _plan_weights(trainer: PlanHost) -> Weights:
    settings, model = RunPlanSettings.of(trainer.args), trainer.model
    decays = set(trainer.get_decay_parameter_names(model))
    trained = {name: one.numel() for name, one in model.named_parameters() if one.requires_grad}
    given = trainer.optimizer is not None and trainer._run is None
    return Weights(
        optimizer=type(trainer.optimizer).__name__ if given else _choose_optimizer(trainer)[0].__name__,
        trainable=sum(trained.values()),
        frozen=sum(one.numel() for one in model.parameters() if not one.requires_grad),
        decayed=sum(size for name, size in trained.items() if name in decays),
        weight_decay=settings.weight_decay,
        clipped_at=settings.max_grad_norm,
        is_given=given,
    )


def _plan_schedule(trainer: PlanHost, steps: int) -> Schedule:
    settings = ScheduleSettings.of(trainer.args, steps)
    if trainer.lr_scheduler is not None and not trainer._created_lr_scheduler:
        return Schedule(type(trainer.lr_scheduler).__name__, None, 0, is_given=True)
    peak = RunPlanSettings.of(trainer.args).learning_rate
    rates = _sample_rates(settings, peak, steps) if trainer.optimizer is None or trainer._created_lr_scheduler else ()
    return Schedule(str(SchedulerType(settings.name).value), peak, settings.warmup_steps, rates)


def _sample_rates(settings: ScheduleSettings, peak: float, steps: int) -> tuple[Rate, ...]:
    """Return the rate at a few steps; none if it depends on a metric."""
    placeholder = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = schedulers.build_schedule(settings, placeholder)
    if not isinstance(schedule, LambdaLR) or steps < 1:
        return ()
    factor = schedule.lr_lambdas[0]
    after_warmup = min(settings.warmup_steps + 1, steps)
    chosen = sorted({1, after_warmup, (after_warmup + steps) // 2, steps})
    return tuple(Rate(step, peak * float(factor(step - 1))) for step in chosen)


def _plan_computing(trainer: PlanHost) -> Computing:
    settings = RunPlanSettings.of(trainer.args)
    kinds = dict.fromkeys(str(one.dtype).removeprefix("torch.") for one in trainer.model.parameters())
    return Computing(
        device=str(trainer.strategy.device),
        processes=LoaderSettings.of(trainer.args).world_size,
        weights=", ".join(kinds) or "no type",
        mixed=settings.mixed_precision,
        gradient_checkpointing=settings.gradient_checkpointing,
        compiled=settings.compile_backend,
    )


# ---- memory ---------------------------------------------------------------------------------------------------------


def build_memory_plan(trainer: PlanHost, *, per_host: int, hosts: int = 1, shard: Layout | None = None) -> MemoryPlan:
    """Return the memory that each process of a run would need.

    Args:
        trainer: It need not run in so many processes.
        per_host: The processes on each host.
        hosts: How many there are.
        shard: One way to divide the model; None for all, "hybrid" if there are several hosts.
    """
    parts: dict[Layout, int] = {"none": 1, "full": per_host * hosts, "hybrid": per_host}
    if shard is not None:
        parts = {shard: parts[shard]}
    elif hosts == 1:
        del parts["hybrid"]  # the same as "full"
    return _measure_memory(trainer, per_host * hosts, hosts, parts)


def _plan_memory(trainer: PlanHost) -> MemoryPlan | None:
    """Return the memory of the processes of this run; None if there is one, or if layers are divided by their plan."""
    world, shards = World.from_environment(), ShardSettings.of(trainer.args)
    if world.size == 1 or (shards is not None and shards.tensor_size > 1):
        return None
    hosts = max(world.size // world.local_size, 1)
    if shards is None:
        return _measure_memory(trainer, world.size, hosts, {"none": 1})
    parts = shards.shard_size or (world.local_size if shards.hybrid else world.size)
    return _measure_memory(trainer, world.size, hosts, {"full" if parts == world.size else "hybrid": parts})


def _measure_memory(trainer: PlanHost, processes: int, hosts: int, parts: dict[Layout, int]) -> MemoryPlan:
    if trainer.optimizer is not None:
        kind, options = type(trainer.optimizer), next(iter(getattr(trainer.optimizer, "param_groups", ())), {})
    else:
        kind, options = _choose_optimizer(trainer)
    layouts = tuple(
        measure_layout(trainer.model, kind, options, shard=name, processes=processes, parts=count)
        for name, count in parts.items()
    )
    return MemoryPlan(trainer._model_name, processes, hosts, kind.__name__, layouts)


# ---- time -----------------------------------------------------------------------------------------------------------


def _estimate_duration(trainer: PlanHost, plan: Plan, evaluations: Evaluations, checkpoints: Checkpoints) -> Duration:
    """Estimate the duration from an earlier run of this trainer, or from a rehearsal."""
    runs = [entry for entry in trainer.state.log_history if entry.get("train_steps_per_second")]
    if runs:
        each = 1 / runs[-1]["train_steps_per_second"]
        return Duration(each, each * plan.max_steps, source="measured in the last run, with its evaluations and saves")
    rehearsed = trainer._rehearsed
    if rehearsed is None or rehearsed.train_seconds is None:
        return Duration(None)
    each = rehearsed.train_seconds * plan.accumulation
    evaluating = saving = None
    if rehearsed.eval_seconds is not None and evaluations.count and evaluations.batches:
        tried = min(evaluations.batches, 2 * len(evaluations.rows))  # a rehearsal computes two of every set
        evaluating = rehearsed.eval_seconds / tried * evaluations.batches * evaluations.count
    if rehearsed.save_seconds is not None and checkpoints.count:
        saving = rehearsed.save_seconds * checkpoints.count
    return Duration(
        each,
        each * plan.max_steps,
        evaluating,
        saving,
        "measured in the rehearsal, whose first batch is slower than later ones",
    )


# ---- callbacks and remarks ------------------------------------------------------------------------------------------


def _list_callbacks(trainer: PlanHost) -> tuple[str, ...]:
    """Return the callbacks that may stop a run: the user's own, and early stopping."""
    ours = __name__.partition(".")[0]
    kinds = (type(one) for one in trainer.callback_handler.callbacks)
    return tuple(kind.__name__ for kind in kinds if kind is EarlyStoppingCallback or not _is_defined_in(kind, ours))


def _is_defined_in(kind: type, package: str) -> bool:
    return kind.__module__.partition(".")[0] == package


def _find_remarks(trainer: PlanHost, plan: Plan, intervals: TrainerState, checkpoints: Checkpoints) -> tuple[str, ...]:
    """Return the settings that are probably not intended."""
    settings, found = RunPlanSettings.of(trainer.args), []
    warmup = ScheduleSettings.of(trainer.args, plan.max_steps).warmup_steps
    if warmup >= plan.max_steps > 0 and trainer.lr_scheduler is None:
        found.append(
            f"warm-up takes {warmup:,} steps, and the run has {plan.max_steps:,}: the peak rate is never reached"
        )
    by_steps = settings.logging_strategy == IntervalStrategy.STEPS and not settings.logs_first_step
    if by_steps and intervals.logging_steps > plan.max_steps:
        found.append(
            f"no training loss is logged: logging_steps={intervals.logging_steps:,}, and the run has "
            f"{plan.max_steps:,} steps"
        )
    if checkpoints.free is not None and checkpoints.bytes_at_once and checkpoints.bytes_at_once > checkpoints.free:
        found.append(
            f"the checkpoints do not fit: {space.format_size(checkpoints.bytes_at_once)} at once, and "
            f"{space.format_size(checkpoints.free)} are free in {checkpoints.directory}"
        )
    if not any(one.requires_grad for one in trainer.model.parameters()):
        found.append("no parameter is trained: none has requires_grad=True")
    if (reason := _find_reason_to_wait(trainer)) is not None:
        found.append(
            f"the device is idle at every step until the host has read whether the step is finite, as {reason}; "
            "torch's fused optimizers look themselves (optim='adamw_torch_fused') where one device has all weights"
        )
    return tuple(found)


def _find_reason_to_wait(trainer: PlanHost) -> str | None:
    """Return why the host waits for the device at every step; None if it does not, or computes itself."""
    if trainer.strategy.device.type == "cpu":
        return None
    trained = (parameter for parameter in trainer.model.parameters() if parameter.requires_grad)
    if (reason := guarded_step.find_reason_of_place(trained)) is not None:
        return reason
    if trainer.optimizer is not None:
        schedule = None if schedulers.is_metric_schedule(trainer.lr_scheduler) else trainer.lr_scheduler
        return guarded_step.find_reason_to_wait(trainer.optimizer, schedule)
    kind, options = _choose_optimizer(trainer)
    return guarded_step.find_reason_of_kind(kind, is_fused=bool(options.get("fused")))


def _plan_evaluations(trainer: PlanHost, plan: Plan, intervals: TrainerState) -> Evaluations:
    """Return when a run evaluates, and on how many rows."""
    settings, evaluated = RunPlanSettings.of(trainer.args), eval_dry_run.list_eval_sets(trainer.eval_dataset)
    sets = {name or "eval_dataset": one for name, one in evaluated.items() if one is not None}
    rows = tuple(
        (name, len(unwrap_eval_set(one)) if has_length(unwrap_eval_set(one)) else None) for name, one in sets.items()
    )
    if settings.eval_strategy == IntervalStrategy.NO:
        return Evaluations("never during training", 1 if settings.evaluates_first else 0, rows, None)
    if settings.eval_strategy == IntervalStrategy.STEPS:
        when = f"every {intervals.eval_steps:,} steps and at the last one"
        count = _count_occurrences(plan.max_steps, intervals.eval_steps, first=settings.eval_delay)
    else:
        when, count = "at the end of every epoch", _count_epochs(plan, first=settings.eval_delay)
    batches = [_count_eval_batches(trainer, one) for one in sets.values()]
    return Evaluations(
        when=f"{when}, and before the first" if settings.evaluates_first else when,
        count=None if count is None else count + settings.evaluates_first,
        rows=rows,
        batches=None if None in batches else sum(each or 0 for each in batches),
        metrics=_list_metrics(trainer),
    )


def _count_eval_batches(trainer: PlanHost, evaluated: Any) -> int | None:
    """Return how many batches an evaluation set has, counting those of all processes once."""
    rows = unwrap_eval_set(evaluated)
    if isinstance(rows, DataLoader):
        return len(rows) if has_length(rows) else None
    own = evaluated.batch_size if isinstance(evaluated, EvalSet) else None
    size = (own or RunPlanSettings.of(trainer.args).eval_batch_size) * LoaderSettings.of(trainer.args).world_size
    return -(-len(rows) // size) if has_length(rows) else None


def _list_metrics(trainer: PlanHost) -> tuple[str, ...]:
    """Return the names of the metrics of all evaluation sets."""
    sets = eval_dry_run.list_eval_sets(trainer.eval_dataset).values()
    specs = [request.find_requested_metrics(trainer, one if isinstance(one, EvalSet) else None) for one in sets]
    return tuple(dict.fromkeys(name for spec in specs for name in metric_preview.list_metrics_in_use(spec)))


def _count_occurrences(steps: int, interval: int, first: float = 0) -> int:
    """Return how often something happens every `interval` steps and at the last one, from step `first` on."""
    every, before = max(int(interval), 1), max(math.ceil(first), 1) - 1
    return max(steps // every - before // every, 0) + bool(steps % every and steps > before)


def _count_epochs(plan: Plan, first: float = 0) -> int | None:
    """Return how many epochs end, from epoch `first` on; None if their length is unknown."""
    if plan.epochs == sys.maxsize:
        return None
    return max(plan.epochs - (max(math.ceil(first), 1) - 1), 0)


def _plan_checkpoints(trainer: PlanHost, plan: Plan, intervals: TrainerState, evaluations: int | None) -> Checkpoints:
    """Return when a run saves, how large a checkpoint is, and how many exist at once."""
    settings, planned = SaveSettings.of(trainer.args), RunPlanSettings.of(trainer.args)
    directory = Path(trainer._get_output_dir(None))
    best = planned.best_metric
    loads_best = best if planned.loads_best else None
    if settings.strategy == SaveStrategy.NO:
        return Checkpoints("never", str(directory), 0, None, None, None, None, loads_best)
    if settings.strategy == SaveStrategy.STEPS:
        when, count = (
            f"every {intervals.save_steps:,} steps and at the last one",
            _count_occurrences(plan.max_steps, intervals.save_steps),
        )
    elif settings.strategy == SaveStrategy.EPOCH:
        when, count = "at the end of every epoch", _count_epochs(plan)
    else:
        when, count = f"whenever {best} is the best so far (at most {evaluations} times)", None
    size = _estimate_checkpoint_bytes(trainer, only_model=settings.only_model)
    at_once = space.count_coexisting(count if count is not None else evaluations, settings.total_limit)
    return Checkpoints(
        when=when,
        directory=str(directory),
        count=count,
        kept=settings.total_limit,
        bytes_each=size,
        bytes_at_once=None if at_once is None else at_once * size,
        free=_find_free_bytes(directory),
        best=loads_best,
    )


def _estimate_checkpoint_bytes(trainer: PlanHost, *, only_model: bool) -> int:
    """Estimate the size from the optimizer's settings: a rehearsal saves before the optimizer has a state."""
    if only_model:
        return space.forecast_size(trainer.model, None)
    if trainer.optimizer is not None:
        return space.forecast_size(trainer.model, space.estimate_state_factor(trainer.optimizer))
    kind, options = _choose_optimizer(trainer)
    try:
        placeholder = kind([nn.Parameter(torch.zeros(1))], **options)
    except Exception:  # an optimizer that needs the model: most keep two numbers per parameter
        return space.forecast_size(trainer.model, 2.0)
    return space.forecast_size(trainer.model, space.estimate_state_factor(placeholder))


def _find_free_bytes(directory: Path) -> int | None:
    """Return the free bytes on the disk of a directory that may not exist yet."""
    place = directory.absolute()
    existing = next((level for level in (place, *place.parents) if level.is_dir()), place)
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return None


def _plan_logs(trainer: PlanHost, plan: Plan, intervals: TrainerState) -> Logs:
    """Return when a run reports its numbers."""
    settings = RunPlanSettings.of(trainer.args)
    to = settings.report_to
    if settings.logging_strategy == IntervalStrategy.NO:
        return Logs("never", 0, to)
    if settings.logging_strategy == IntervalStrategy.STEPS:
        first = bool(settings.logs_first_step and intervals.logging_steps > 1)
        return Logs(
            f"every {intervals.logging_steps:,} steps", plan.max_steps // max(intervals.logging_steps, 1) + first, to
        )
    return Logs("at the end of every epoch", _count_epochs(plan), to)


def _choose_optimizer(trainer: PlanHost) -> tuple[Any, dict[str, Any]]:
    """Return the optimizer class that would be used, and its arguments."""
    if trainer.optimizer_cls_and_kwargs is not None:
        return trainer.optimizer_cls_and_kwargs
    return trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
