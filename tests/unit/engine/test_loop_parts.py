"""Losses summed up, numbers that are not numbers, operations counted."""

from __future__ import annotations

import math
from collections import UserDict
from types import SimpleNamespace

import pytest
import torch

from ostinato.core.errors import NonFiniteError
from ostinato.core.timing import speed_metrics
from ostinato.engine.finish import compute_mean_loss
from ostinato.engine.finite_guard import NonFiniteGuard
from ostinato.engine.flops import FlopCounter, can_count_operations, count_operations, find_deciding_input
from ostinato.engine.meters import LossMeter
from ostinato.engine.token_count import TokenCounter
from tests.support import tiny

CPU = torch.device("cpu")

# ----------------------------------------------------------------------------------------------------------- meter


def filled(*losses: float) -> LossMeter:
    meter = LossMeter(CPU)
    for loss in losses:
        meter.hold(torch.tensor(loss))
    meter.commit(meter.take())
    return meter


def test_meter_means_over_steps() -> None:
    meter = filled(1.0, 2.0, 3.0)
    assert meter.drain(meter.pending, float(meter.pending), 3) == 2.0
    assert meter.pending == 0
    assert (meter.total, meter.last_step) == (6.0, 3)
    meter.hold(torch.tensor(5.0))
    meter.commit(meter.take())
    assert meter.drain(meter.pending, float(meter.pending), 5) == 2.5  # two steps since
    assert meter.total == 11.0


def test_held_losses_count_only_when_committed() -> None:
    meter = LossMeter(CPU)
    meter.hold(torch.tensor(math.nan))
    assert meter.pending == 0
    meter.take()
    meter.reject()
    meter.hold(torch.tensor(4.0))
    meter.commit(meter.take())
    assert math.isnan(meter.drain(meter.pending, float(meter.pending), 2))  # the window says that it was spoilt
    assert meter.total == 4.0
    meter.hold(torch.tensor(4.0))
    meter.commit(meter.take())
    assert meter.drain(meter.pending, float(meter.pending), 3) == 4.0  # once


def test_meter_drains_what_it_is_given() -> None:
    """Overrides pass a tensor of their own; that one is emptied."""
    meter, own = filled(1.0), torch.tensor(6.0)
    assert meter.drain(own, float(own), 2) == 3.0
    assert own == 0
    assert meter.pending == 1.0


def test_meter_means_over_processes() -> None:
    meter = filled(1.0)
    assert meter.drain(meter.pending, 2.0, 1) == 2.0  # the mean of all processes, not the own sum
    assert meter.pending == 0


def test_draining_twice_at_one_step() -> None:
    meter = filled(1.0)
    meter.drain(meter.pending, float(meter.pending), 1)
    assert meter.drain(meter.pending, float(meter.pending), 1) == 0.0


@pytest.mark.parametrize(("keep_bad", "expected"), [(False, 2.0), (True, math.nan)])
def test_final_mean(keep_bad: bool, expected: float) -> None:
    meter = filled(1.0, 3.0)
    meters = SimpleNamespace(loss=meter, steps_without_loss=0)
    run = SimpleNamespace(meters=meters, guard=SimpleNamespace(refused=1))
    assert compute_mean_loss(run, 3, keep_bad=keep_bad) == pytest.approx(expected, nan_ok=True)
    run.guard.refused = 0
    assert compute_mean_loss(run, 2, keep_bad=keep_bad) == 2.0


# ----------------------------------------------------------------------------------------------------------- guard


def guard_of(patience: int = 3, rows=None, **options) -> NonFiniteGuard:
    return NonFiniteGuard(patience=patience, rows_of=lambda epoch, batches: rows, **options)


def judge(guard: NonFiniteGuard, grad_norm, losses) -> bool:
    return guard.is_finite(guard.add_up(grad_norm, losses))


def refuse(guard: NonFiniteGuard, step: int) -> None:
    guard.refuse(step=step, losses=[math.nan], grad_norm=math.inf, epoch=1, batches=range(2, 4))


def test_guard_lets_finite_numbers_pass() -> None:
    guard = guard_of()
    assert judge(guard, torch.tensor(1.0), [torch.tensor(2.0), torch.tensor(3.0)])
    assert judge(guard, 1.0, [])
    assert judge(guard, None, [torch.tensor(1.0)])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_guard_stops_the_rest(bad: float) -> None:
    guard = guard_of()
    assert not judge(guard, torch.tensor(bad), [torch.tensor(1.0)])
    assert not judge(guard, bad, [])
    assert not judge(guard, torch.tensor(1.0), [torch.tensor(1.0), torch.tensor(bad)])
    assert not judge(guard, None, [torch.tensor(bad)])


def test_opposite_infinities_do_not_cancel() -> None:
    assert not judge(guard_of(), 1.0, [torch.tensor(math.inf), torch.tensor(-math.inf)])


def test_guard_that_judges_the_norm_only() -> None:
    guard = guard_of(judges_loss=False)
    assert judge(guard, torch.tensor(1.0), [torch.tensor(math.nan)])
    assert not judge(guard, torch.tensor(math.nan), [torch.tensor(1.0)])


def test_guard_names_step_and_rows(capsys: pytest.CaptureFixture[str]) -> None:
    refuse(guard_of(rows=[7, 3, 9]), 6)
    said = capsys.readouterr().err
    assert "step 6" in said
    assert "rows 7, 3, 9" in said
    assert "loss nan" in said
    assert "gradient norm inf" in said
    refuse(guard_of(rows=None), 6)
    assert "batches [2, 3] of epoch 1" in capsys.readouterr().err
    refuse(guard_of(rows=list(range(100))), 6)
    said = capsys.readouterr().err
    assert "(100 in all)" in said
    assert "99" not in said.replace("100", "")


def test_patience() -> None:
    guard = guard_of(patience=3)
    refuse(guard, 4)
    refuse(guard, 5)
    with pytest.raises(NonFiniteError, match=r"3 step\(s\) in a row") as caught:
        refuse(guard, 6)
    assert "step 4" in str(caught.value)
    assert "weights are those of step 3" in caught.value.why
    assert guard.refused == 3


def test_patience_starts_anew_after_a_good_step() -> None:
    guard = guard_of(patience=2)
    refuse(guard, 1)
    assert judge(guard, 1.0, [])
    refuse(guard, 3)
    assert guard.first_step == 3
    assert guard.refused == 2
    with pytest.raises(NonFiniteError):
        refuse(guard, 4)


@pytest.mark.parametrize("patience", [0, 1])
def test_no_patience(patience: int) -> None:
    with pytest.raises(NonFiniteError):
        refuse(guard_of(patience), 1)


# ------------------------------------------------------------------------------------------------------------ flops


def test_counter_asks_once_per_shape() -> None:
    asked: list = []

    def count(batch):
        asked.append(batch["x"].shape)
        return batch["x"].numel()

    counter = FlopCounter(count, by_shape_of="x")
    for length in (3, 3, 5, 3):
        counter.add({"x": torch.ones(2, length)})
    assert len(asked) == 2
    assert counter.take() == 28
    assert counter.take() == 0
    counter.add({"x": torch.ones(2, 3)})
    assert counter.take() == 6


def test_counter_asks_every_time_when_the_shape_does_not_decide() -> None:
    asked: list = []
    counter = FlopCounter(lambda batch: asked.append(batch) or 1.0, by_shape_of=None)
    counter.add({"x": torch.ones(2)})
    counter.add({"x": torch.ones(2)})
    assert len(asked) == 2
    by_missing = FlopCounter(lambda batch: 1.0, by_shape_of="y")
    by_missing.add({"x": torch.ones(2)})
    assert by_missing.take() == 1


def test_counter_of_a_model_that_does_not_say() -> None:
    counter = FlopCounter(None, None)
    counter.add({})
    assert counter.take() == 0
    assert not can_count_operations(tiny.regression())
    assert count_operations(tiny.regression(), {"x": torch.ones(2)}) == 0


def test_model_that_says_itself() -> None:
    model = SimpleNamespace(floating_point_ops=lambda inputs: 7.9)
    assert can_count_operations(model)
    assert find_deciding_input(model) is None
    assert count_operations(model, {}) == 7


def test_model_that_counts_its_parameters() -> None:
    model = SimpleNamespace(num_parameters=lambda exclude_embeddings: 10, main_input_name="input_ids")
    assert can_count_operations(model)
    assert count_operations(model, {"input_ids": torch.ones(2, 3)}) == 6 * 6 * 10
    assert count_operations(model, {"other": torch.ones(2, 3)}) == 0


def test_speed() -> None:
    found = speed_metrics("eval", 10.0, num_samples=30, num_steps=3, now=14.0)
    assert found == {"eval_runtime": 4.0, "eval_samples_per_second": 7.5, "eval_steps_per_second": 0.75}
    assert speed_metrics("eval", 10.0, num_samples=30, now=10.0) == {"eval_runtime": 0.0}
    assert speed_metrics("train", 0.0, num_tokens=8, now=2.0)["train_tokens_per_second"] == 4.0


# ---------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([[1, 1, 0], [1, 0, 0]]),
        torch.tensor([[True, True, False], [True, False, False]]),
        torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        torch.tensor([[1, 2, 0], [3, 0, 0]]),  # packed sequences are numbered
    ],
)
def test_tokens_are_what_the_mask_does_not_leave_out(mask: torch.Tensor) -> None:
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": mask}
    for kind in (dict, UserDict):
        assert TokenCounter("input_ids", mode="non_padding", pad_token_id=None)(kind(batch)) == 3
        assert TokenCounter("input_ids", mode="all", pad_token_id=None)(kind(batch)) == 6


@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.bool, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 8), (4, 256), (4, 257), (1, 2000), (4, 1, 8, 8), (7,)])
def test_tokens_of_few_and_of_many_are_counted_alike(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    mask = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    batch = {"input_ids": torch.ones(shape, dtype=torch.long), "attention_mask": mask}
    count = TokenCounter("input_ids", mode="non_padding", pad_token_id=None)
    assert count(batch) == sum(number != 0 for number in mask.flatten().tolist())
