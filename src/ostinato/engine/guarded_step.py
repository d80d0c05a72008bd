"""The optimizer step of an update whose numbers may not be finite: such numbers do not reach the weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..core.host_copy import HostCopy
from ..core.protocols import TrainHooks
from .meters import UpdateNumbers
from .pending_update import SKIPPED, STEPPED, GuardedUpdate, KnownOutcome, PendingUpdate
from .run import Run
from .updates import Update


def take_step(trainer: TrainHooks, run: Run, update: Update) -> KnownOutcome | PendingUpdate:
    """Take the optimizer step, or skip it if numbers are not finite. They are counted, or left out and reported.

    The host waits for the device to tell, unless the optimizer can look itself.
    """
    numbers, precision = run.meters.take(), trainer.precision
    total = run.guard.add_up(run.step.grad_norm, numbers.losses)
    if isinstance(total, Tensor) and not total.is_cpu and _can_defer(trainer, run):
        verdict = HostCopy([total])  # before the step, so that reading it does not wait for the step
        bad = torch.isfinite(total).logical_not_().to(torch.float32).reshape(())
        del total  # the step is where most of the memory is in use
        overflow = precision.step_unless(trainer.optimizer, bad)
        run.step.pending = PendingUpdate(_build_guarded(trainer, run, update, numbers), verdict, overflow)
        return run.step.pending
    if run.guard.is_finite(total):
        run.meters.commit(update, numbers)
        advances = precision.step(trainer.optimizer)
        if trainer.strategy.device.type != "cpu":
            run.step.stepped.add(trainer.optimizer, run.parameters.list_with_gradients())
    else:
        is_due_to_scale = precision.has_overflowed(trainer.optimizer)
        _build_guarded(trainer, run, update, numbers).refuse(is_due_to_scale=is_due_to_scale)
        advances = precision.skip(trainer.optimizer)
    return STEPPED if advances else SKIPPED


def _build_guarded(trainer: TrainHooks, run: Run, update: Update, numbers: UpdateNumbers) -> GuardedUpdate:
    step, add = trainer.state.global_step + 1, trainer.strategy.sum
    return GuardedUpdate(run.guard, run.meters, update, numbers, step, run.step.grad_norm, add)


def _can_defer(trainer: TrainHooks, run: Run) -> bool:
    """Return whether the verdict can be read later.

    The first step of a parameter is waited for: a fused optimizer that skips it leaves new averages uninitialized.
    """
    present = run.parameters.list_with_gradients()
    schedule = trainer.lr_scheduler if run.options.steps_schedule else None
    return (
        run.step.stepped.has_all(trainer.optimizer, present)
        and find_reason_of_place(present) is None
        and find_reason_to_wait(trainer.optimizer, schedule) is None
    )


def find_reason_to_wait(optimizer: Any, schedule: Any) -> str | None:
    """Return why every step has to wait until it is known whether it was finite; None if none has to."""
    name, is_fused = type(optimizer).__name__, getattr(optimizer, "_step_supports_amp_scaling", False)
    if (reason := find_reason_of_kind(type(optimizer), is_fused=is_fused)) is not None:
        return reason
    hooks = (*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values())
    if not all(getattr(hook, "reads_found_inf", False) for hook in hooks):
        return f"{name} has hooks, which a skipped step does not call"
    if schedule is None:
        return None
    if getattr(schedule, "optimizer", None) is not optimizer or not callable(
        getattr(schedule, "load_state_dict", None)
    ):
        return f"{type(schedule).__name__} cannot be set back by a step"
    if any(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
        return "the learning rate is a tensor"
    return None


def find_reason_of_place(tensors: Iterable[Tensor]) -> str | None:
    """Return why the step of weights that are in several places has to wait; None if a device has them all.

    torch copies a device's verdict to the others without a wait: the CPU would compute before it has arrived.
    """
    return "some weights are in the host's memory" if any(tensor.is_cpu for tensor in tensors) else None


def find_reason_of_kind(kind: type, *, is_fused: bool) -> str | None:
    """Return why optimizers of a class cannot leave out a step by themselves; None if they can."""
    if not kind.__module__.startswith("torch.optim."):
        return f"{kind.__name__} is not torch's own"
    return None if is_fused else f"{kind.__name__} is not fused"
