"""An update whose verdict comes late: what is counted, refused and set back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, SequentialLR, StepLR

from ostinato.core.host_copy import HostCopy, read_numbers
from ostinato.engine.finite_guard import NonFiniteGuard
from ostinato.engine.flops import FlopCounter
from ostinato.engine.guarded_step import find_reason_to_wait
from ostinato.engine.meters import LossMeter, Meters
from ostinato.engine.pending_update import GuardedUpdate, PendingUpdate
from ostinato.engine.schedule_step import ScheduleStep
from ostinato.engine.updates import Update
from ostinato.loss.objective import Objective
from ostinato.strategies.batch_transfer import BatchTransfer
from ostinato.strategies.precision import SMALLEST_SCALE, FoundInfinite, FullPrecision


def make_optimizer(**options: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(nn.Linear(2, 1).parameters(), lr=0.1, **options)


SCHEDULES = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, 1.0, 10),
    "in sequence": lambda optimizer: SequentialLR(
        optimizer, [StepLR(optimizer, 1, 0.5), StepLR(optimizer, 1, 0.9)], milestones=[2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_step_of_a_schedule_is_undone(name: str, steps: int) -> None:
    optimizer = make_optimizer()
    schedule = SCHEDULES[name](optimizer)
    for _ in range(steps):
        optimizer.step()
        schedule.step()
    optimizer.step()
    rate, momentum, last = schedule.get_last_lr(), optimizer.param_groups[0]["betas"], schedule.last_epoch
    step = ScheduleStep.take(schedule)
    assert schedule.last_epoch == last + 1
    after = schedule.get_last_lr()
    step.undo()
    assert (schedule.get_last_lr(), optimizer.param_groups[0]["betas"], schedule.last_epoch) == (rate, momentum, last)
    assert optimizer.param_groups[0]["lr"] == rate[0]
    schedule.step()
    assert schedule.get_last_lr() == after


def test_what_others_set_meanwhile_stays() -> None:
    optimizer = make_optimizer()
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    optimizer.step()
    step = ScheduleStep.take(schedule)
    optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"] = 7.0, 0.5
    step.undo()
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]) == (7.0, 0.5)


# ------------------------------------------------------------------------------------------------------------ settling


def pending_of(
    total: float, loss: float, found: FoundInfinite | None = None
) -> tuple[PendingUpdate, NonFiniteGuard, Meters]:
    guard = NonFiniteGuard(patience=3, rows_of=lambda epoch, batches: [4, 5])
    meters = Meters(LossMeter(torch.device("cpu")), Objective(), FlopCounter(None, None))
    meters.loss.hold(torch.tensor(loss))
    update = Update([{"x": 1.0}], None, [1.0], 0.1, 0, 0)
    guarded = GuardedUpdate(guard, meters, update, meters.take(), 6, torch.tensor(total), lambda value: value)
    return PendingUpdate(guarded, HostCopy([torch.tensor(total)]), found or FoundInfinite()), guard, meters


def test_a_finite_update_counts_when_it_is_settled() -> None:
    pending, guard, meters = pending_of(1.0, 2.5)
    guard.in_a_row = 2
    meters.loss.hold(torch.tensor(100.0))  # of the next update
    assert meters.loss.pending == 0
    pending.settle()
    assert (meters.loss.pending, guard.in_a_row, guard.refused) == (2.5, 0, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_update_is_named_and_the_schedule_set_back(bad: float, capsys: pytest.CaptureFixture[str]) -> None:
    pending, guard, meters = pending_of(bad, 2.5)
    optimizer = make_optimizer()
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    optimizer.step()
    pending.step_schedule(schedule)
    assert schedule.last_epoch == 1
    pending.settle()
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (0, 0.1)
    assert (meters.loss.pending, meters.loss.poisoned, guard.refused) == (0, True, 1)
    assert "step 6: loss 2.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "scale", "loss", "is_overflow"),
    [
        (1.0, 1024.0, 2.5, True),
        (1.0, SMALLEST_SCALE, 2.5, False),
        (1.0, 1024.0, math.nan, False),
        (0.0, 1024.0, math.inf, False),
    ],
)
def test_an_overflow_is_counted_and_the_schedule_advances(
    found: float, scale: float, loss: float, is_overflow: bool
) -> None:
    """As in transformers, the schedule advances wherever the scaler corrects the scale of a fused optimizer."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale / 2)  # as it is after the step
    pending, guard, _ = pending_of(math.nan, loss, FoundInfinite([torch.tensor(found)], scaler))
    optimizer = make_optimizer()
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    optimizer.step()
    pending.step_schedule(schedule)
    pending.settle()
    assert (guard.overflows, guard.refused) == ((1, 0) if is_overflow else (0, 1))
    assert schedule.last_epoch == int(found)


# -------------------------------------------------------------------------------------------------------------- fused


@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_a_fused_optimizer_leaves_out_a_step_by_itself(bad: float) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for number in (0.0, bad):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        FullPrecision().step_unless(optimizer, torch.tensor(number))
    assert all(map(torch.equal, before, model.parameters())) == bool(bad)
    assert [float(state["step"]) for state in optimizer.state.values()] == [2.0 - bad] * 2
    assert "found_inf" not in vars(optimizer)


class Own(torch.optim.AdamW):
    pass


def test_reasons_to_wait() -> None:
    fused = make_optimizer(fused=True)
    schedule = LambdaLR(fused, lambda step: 1.0)
    assert find_reason_to_wait(fused, schedule) is None
    assert find_reason_to_wait(fused, None) is None
    assert find_reason_to_wait(make_optimizer(), None) == "AdamW is not fused"
    assert find_reason_to_wait(Own(nn.Linear(2, 1).parameters(), fused=True), None) == "Own is not torch's own"
    assert find_reason_to_wait(fused, object()) == "object cannot be set back by a step"
    assert find_reason_to_wait(make_optimizer(fused=True), schedule) == "LambdaLR cannot be set back by a step"
    fused.register_step_post_hook(lambda *args: None)
    assert "hooks" in str(find_reason_to_wait(fused, schedule))


# -------------------------------------------------------------------------------------------------------------- copies


def test_numbers_on_the_host_are_read_at_once() -> None:
    copy = HostCopy({"a": torch.tensor(1.0), "b": [torch.tensor([2, 3]), "text"]})
    assert copy.has_arrived
    assert copy.get() == {"a": torch.tensor(1.0), "b": [copy.get()["b"][0], "text"]}
    assert read_numbers([torch.tensor(1.5), 2.0, torch.tensor(3)]) == [1.5, 2.0, 3.0]


def test_batches_for_a_cpu_are_passed_on() -> None:
    batches = [{"x": torch.ones(2)}, {"x": torch.zeros(2)}]
    passed = list(BatchTransfer(torch.device("cpu")).stay_ahead(batches))
    assert all(one is other for one, other in zip(passed, batches, strict=True))
