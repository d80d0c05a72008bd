"""The progress of a run, as data and as a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ostinato.core.state import ExportableState, TrainerControl, TrainerState, export_callbacks
from tests.support.apis import guest, load_library


class Counter(ExportableState):
    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.count = start

    def state(self) -> dict:
        return {"args": {"start": self.start}, "attributes": {"count": self.count}}


def filled() -> TrainerState:
    return TrainerState(
        epoch=1.5,
        global_step=7,
        max_steps=20,
        train_batch_size=4,
        num_train_epochs=3,
        total_flos=1e9,
        log_history=[{"loss": 0.5, "step": 1}, {"eval_loss": 0.25, "step": 2}],
        best_metric=0.25,
        best_model_checkpoint="out/checkpoint-2",
        trial_params={"learning_rate": 0.1},
        stateful_callbacks=[Counter(3), TrainerControl(should_log=True)],
    )


def test_round_trip(tmp_path: Path) -> None:
    state, path = filled(), tmp_path / "trainer_state.json"
    state.save_to_json(path)
    assert TrainerState.load_from_json(path) == state
    assert TrainerState.load_from_json(str(path)).stateful_callbacks["Counter"]["attributes"] == {"count": 3}


def test_unknown_fields_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({**dataclasses.asdict(filled()), "of_a_later_version": 1}))
    assert TrainerState.load_from_json(path) == filled()
    path.write_text('{"global_step": 4}')
    assert TrainerState.load_from_json(path) == TrainerState(global_step=4)


def test_transformers_reads_ours_and_we_read_theirs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = load_library("transformers").TrainerState
        filled().save_to_json(tmp_path / "ours.json")
        there = theirs.load_from_json(str(tmp_path / "ours.json"))
        assert dataclasses.asdict(there) == dataclasses.asdict(filled())
        there.save_to_json(str(tmp_path / "theirs.json"))
        assert TrainerState.load_from_json(tmp_path / "theirs.json") == filled()
        assert (tmp_path / "theirs.json").read_text() == (tmp_path / "ours.json").read_text()


def test_two_states_share_nothing() -> None:
    one, other = TrainerState(), TrainerState()
    one.log_history.append({"loss": 1.0})
    one.stateful_callbacks["x"] = {}
    assert other.log_history == []
    assert other.stateful_callbacks == {}


@pytest.mark.parametrize(
    ("asked", "max_steps", "got"),
    [(10, 100, 10), (0.1, 100, 10), (0.1, 15, 2), (0.001, 100, 1), (0.5, 7, 4), (1, 5, 1), (1.0, 5, 1.0)],
)
def test_compute_steps(asked: float, max_steps: int, got: float) -> None:
    state = TrainerState()
    state.compute_steps(SimpleNamespace(logging_steps=asked, eval_steps=asked, save_steps=asked), max_steps)
    assert (state.logging_steps, state.eval_steps, state.save_steps) == (got, got, got)


def test_interval_that_is_not_asked_for_keeps_its_default() -> None:
    state = TrainerState()
    state.compute_steps(SimpleNamespace(logging_steps=3, eval_steps=None, save_steps=0.5), 10)
    assert (state.logging_steps, state.eval_steps, state.save_steps) == (3, 500, 5)


def test_export_callbacks_with_duplicates() -> None:
    class Plain:
        pass

    exported = export_callbacks([Counter(1), Plain(), TrainerControl(), Counter(2), Counter(3)])
    assert list(exported) == ["Counter", "TrainerControl"]
    assert [state["args"]["start"] for state in exported["Counter"]] == [1, 2, 3]
    assert isinstance(exported["TrainerControl"], dict)
    assert export_callbacks([]) == {}


def test_from_state() -> None:
    counter = Counter(2)
    counter.count = 9
    again = Counter.from_state(counter.state())
    assert (again.start, again.count) == (2, 9)


def test_exportable_without_a_state_raises() -> None:
    class Forgot(ExportableState):
        pass

    with pytest.raises(NotImplementedError, match="Forgot"):
        Forgot().state()


def test_control_clears_and_comes_back() -> None:
    control = TrainerControl(True, True, True, True, True)
    assert TrainerControl.from_state(control.state()) == control
    control._new_step()
    assert control == TrainerControl(should_training_stop=True, should_epoch_stop=True)
    control._new_epoch()
    assert control == TrainerControl(should_training_stop=True)
    control._new_training()
    assert control == TrainerControl()
    json.dumps(control.state())
