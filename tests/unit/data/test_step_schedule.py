"""Steps by arithmetic, against steps that are counted off."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from ostinato.data.row_random import ReadIsolation, RowStreams, Seeder, mix
from ostinato.data.step_schedule import StepSchedule


def counted(schedule: StepSchedule, steps: int) -> list[tuple[int, range]]:
    """Go through the epochs batch by batch."""
    found, epoch, row = [], schedule.epoch, schedule.row
    while len(found) < steps:
        starts = range(row, schedule.rows, schedule.rows_per_batch)
        batches = [range(start, min(start + schedule.rows_per_batch, schedule.rows)) for start in starts]
        if schedule.drop_last:
            batches = [batch for batch in batches if len(batch) == schedule.rows_per_batch]
        for first in range(0, len(batches), schedule.accumulation):
            taken = batches[first : first + schedule.accumulation]
            found.append((epoch, range(taken[0].start, taken[-1].stop)))
        epoch, row = epoch + 1, 0
    return found[:steps]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("rows", "rows_per_batch", "accumulation"), [(22, 4, 1), (22, 4, 2), (24, 8, 3), (7, 7, 1)])
def test_steps_of_a_schedule(rows: int, rows_per_batch: int, accumulation: int, drop_last: bool) -> None:
    for epoch, row, step in itertools.product((0, 2), (0, 1, rows - 1, rows), (0, 5)):
        schedule = StepSchedule(step, epoch, row, rows, rows_per_batch, accumulation, drop_last)
        expected = counted(schedule, 20)
        assert [schedule.rows_of(step + number) for number in range(1, 21)] == expected
        for number, (at, places) in enumerate(expected, start=1):
            here = (at + 1, 0) if schedule.batches_left(places.stop) == 0 else (at, places.stop)
            assert schedule.find_position_after(step + number) == here
        for epochs in (epoch + 1, epoch + 3):
            left = schedule.steps_until(epochs)
            assert expected[left][0] == epochs and (left == 0 or expected[left - 1][0] < epochs)
            assert schedule.epochs_for(step + max(left, 1)) == expected[max(left, 1) - 1][0] + 1


def test_part_of_an_epoch() -> None:
    schedule = StepSchedule(step=3, epoch=1, row=4, rows=20, rows_per_batch=4, accumulation=1, drop_last=False)
    assert schedule.steps_until(1.5) == 2, "row 10 is in the second batch from here"
    assert schedule.steps_until(1.1) == 0
    assert schedule.steps_until(2.5) == 4 + 3


# ------------------------------------------------------------------------------------------------------ random rows


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_streams_of_rows_are_their_own() -> None:
    streams, seen = RowStreams(seed=3), {}
    for epoch, place in itertools.product(range(3), range(50)):
        streams.build_seeder(epoch).seed_row(place)
        seen[epoch, place] = drawn()
    assert len({value for values in seen.values() for value in values}) == 3 * 150
    seeder = streams.build_seeder(2)
    for place in reversed(range(50)):
        seeder.seed_row(place)
        assert drawn() == seen[2, place]
        seeder.seed_collator(place)
        assert drawn() != seen[2, place]
    RowStreams(seed=4).build_seeder(2).seed_row(0)
    assert not set(drawn()) & set(seen[2, 0])


@pytest.mark.parametrize(
    "draw",
    [random.random, lambda: random.gauss(0, 1), np.random.rand, lambda: np.random.normal(), lambda: torch.randn(1)],
    ids=["random", "gauss", "rand", "normal", "randn"],
)
def test_drawing_is_noticed(draw) -> None:
    isolation = ReadIsolation(RowStreams(0))
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    before = drawn()
    torch.manual_seed(0), np.random.seed(0), random.seed(0)

    def read(seeder: Seeder) -> None:
        seeder.seed_row(0)
        seeder.seed_row(1)
        draw()
        seeder.seed_collator(0)

    isolation.read(0, read)
    assert isolation.draws
    assert drawn() == before, "the streams outside have not moved"


def test_reading_that_draws_nothing_is_left_alone() -> None:
    isolation = ReadIsolation(RowStreams(0))
    for _ in range(8):
        assert isolation.is_needed
        isolation.read(0, lambda seeder: [seeder.seed_row(place) for place in range(20)] + [seeder.seed_collator(0)])
    assert not isolation.is_needed
    assert isolation.begin_epoch().is_needed


def test_mixing_spreads() -> None:
    assert len({mix(a, b) for a in range(100) for b in range(100)}) == 10_000
    assert all(0 <= mix(a, a) < 2**64 for a in (0, 1, 2**63, 2**70))
