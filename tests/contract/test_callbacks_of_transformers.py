"""A script that imports its trainer from here, and still imports its callbacks from transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ostinato.core.notices import listen_to_notices
from tests.support import tiny
from tests.support.apis import Api, load_library

pytest.importorskip("transformers")


def names(trainer: Any) -> list[str]:
    return [
        type(one).__name__ for one in trainer.callback_handler.callbacks if type(one).__name__ != "JournalCallback"
    ]


def build(api: Api, *callbacks: Any, **arguments: Any) -> Any:
    """A trainer with the callbacks that the arguments alone give it."""
    args = api.args(**arguments)
    return api.Trainer(
        model=tiny.regression(), args=args, train_dataset=tiny.regression_rows(), callbacks=list(callbacks)
    )


class TestRemoving:
    """`api` is the library of the trainer; the callbacks are always transformers'."""

    @pytest.mark.parametrize("name", ["PrinterCallback", "DefaultFlowCallback", "TrainerCallback"])
    def test_by_class(self, api: Api, name: str) -> None:
        theirs, removed = load_library("transformers"), build(api)
        before = names(removed)
        gone = "DefaultFlowCallback" if name == "TrainerCallback" else name  # the first of all
        removed.remove_callback(getattr(theirs, name))
        assert names(removed) == [one for one in before if one != gone]
        popped = build(api).pop_callback(getattr(theirs, name))
        assert type(popped).__name__ == gone

    def test_a_progress_bar(self, api: Api) -> None:
        trainer = build(api, disable_tqdm=False)
        trainer.remove_callback(load_library("transformers").ProgressCallback)
        assert names(trainer) == ["DefaultFlowCallback"]

    def test_a_tracker(self, api: Api) -> None:
        pytest.importorskip("tensorboard")
        from transformers.integrations import TensorBoardCallback

        trainer = build(api, report_to=["tensorboard"])
        trainer.remove_callback(TensorBoardCallback)
        assert names(trainer) == ["DefaultFlowCallback", "PrinterCallback"]

    def test_instances(self, api: Api) -> None:
        stopping = load_library("transformers").EarlyStoppingCallback()
        trainer = build(api, stopping)
        assert trainer.pop_callback(stopping) is stopping
        assert trainer.pop_callback(stopping) is None
        with pytest.raises(ValueError, match="not in list"):
            trainer.remove_callback(load_library("transformers").PrinterCallback())

    def test_a_class_of_the_user_is_no_counterpart(self, api: Api) -> None:
        theirs = load_library("transformers")
        own = type("PrinterCallback", (theirs.PrinterCallback,), {"__module__": "script"})
        trainer = build(api)
        assert trainer.pop_callback(own) is None
        assert "PrinterCallback" in names(trainer)

    def test_of_this_library(self, ours: Api) -> None:
        stopping = load_library("transformers").EarlyStoppingCallback()
        assert build(ours, stopping).pop_callback(ours.EarlyStoppingCallback) is stopping


def test_a_second_one_is_told(ours: Api) -> None:
    trainer, said = build(ours), []
    with listen_to_notices(lambda kind, text: said.append(text)):
        trainer.add_callback(load_library("transformers").PrinterCallback)
    assert "a PrinterCallback is already among the callbacks" in said[0]


def test_a_tracker_that_is_handed_over_is_not_made_again(ours: Api) -> None:
    pytest.importorskip("tensorboard")
    load_library("transformers")
    from transformers.integrations import TensorBoardCallback

    given = TensorBoardCallback()
    trainer = build(ours, given, report_to=["tensorboard"])
    assert [one for one in trainer.callback_handler.callbacks if type(one).__name__ == "TensorBoardCallback"] == [
        given
    ]


# ------------------------------------------------------------------------------------------------------------- states

SAVES = {
    "save_strategy": "steps",
    "save_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "logging_strategy": "no",
}


def exportable(declared: bool) -> type:
    """A callback of a script, with a state; or with the methods of one alone."""
    theirs = load_library("transformers")
    from transformers.trainer_callback import ExportableState

    class Counting(theirs.TrainerCallback, *([ExportableState] if declared else [])):
        def __init__(self, unit: int = 1) -> None:
            self._unit, self.count = unit, 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.count += self._unit

        def state(self) -> dict[str, Any]:
            return {"args": {"unit": self._unit}, "attributes": {"count": self.count}}

        if not declared:

            @classmethod
            def from_state(cls, state: Any) -> Any:
                made = cls(**state["args"])
                made.count = state["attributes"]["count"]
                return made

    return Counting


def fit(api: Api, *callbacks: Any, resume: bool = False, **arguments: Any) -> Any:
    settings = {"max_steps": 6 if resume else 4, "metric_for_best_model": "loss", **SAVES, **arguments}
    rows = tiny.regression_rows(8)
    args = api.args(**settings)
    trainer = api.Trainer(
        model=tiny.regression(), args=args, train_dataset=rows, eval_dataset=rows, callbacks=list(callbacks)
    )
    trainer.remove_callback(api.PrinterCallback)
    trainer.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-4") if resume else None)
    return trainer


def saved_states(api: Api) -> dict[str, Any]:
    return json.loads((api.output_dir / "checkpoint-4" / "trainer_state.json").read_text())["stateful_callbacks"]


class TestStates:
    def test_are_in_checkpoints(self, api: Api) -> None:
        stopping = load_library("transformers").EarlyStoppingCallback(7, 0.5)
        fit(api, stopping, exportable(declared=True)(3))
        saved = saved_states(api)
        assert saved["EarlyStoppingCallback"]["args"] == {
            "early_stopping_patience": 7,
            "early_stopping_threshold": 0.5,
        }
        assert saved["Counting"] == {"args": {"unit": 3}, "attributes": {"count": 12}}

    def test_the_constructor_too_is_restored_if_asked_for(self, api: Api) -> None:
        kind = exportable(declared=True)
        fit(api, kind(3))
        trainer = fit(api, kind(), resume=True, restore_callback_states_from_checkpoint=True)
        (restored,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, kind)]
        assert (restored._unit, restored.count) == (3, 18)

    def test_the_restored_object_is_the_one_that_was_passed(self, ours: Api) -> None:
        """transformers puts another in its place, at the end of the list."""
        kind = exportable(declared=True)
        fit(ours, kind(3))
        passed = kind()
        fit(ours, passed, resume=True, restore_callback_states_from_checkpoint=True)
        assert passed.count == 18

    def test_what_has_changed_is_always_restored(self, ours: Api) -> None:
        kind = exportable(declared=True)
        fit(ours, kind(3))
        passed = kind()
        fit(ours, passed, resume=True)
        assert (passed._unit, passed.count) == (1, 14)

    def test_the_two_methods_are_enough(self, ours: Api) -> None:
        kind = exportable(declared=False)
        fit(ours, kind(3))
        passed = kind()
        fit(ours, passed, resume=True)
        assert passed.count == 14

    def test_methods_of_other_meanings_harm_nothing(self, api: Api) -> None:
        class Other(load_library("transformers").TrainerCallback):
            def state(self, of: str = "it") -> Any:
                return {of: object()}

            def from_state(self) -> None:
                raise AssertionError("is not called")

        fit(api, Other())
        assert "Other" not in saved_states(api)

    def test_a_state_that_no_callback_takes_is_told(self, ours: Api) -> None:
        fit(ours, exportable(declared=True)(3))
        said: list[str] = []
        with listen_to_notices(lambda kind, text: said.append(text)):
            fit(ours, resume=True)
        (line,) = [one for one in said if "not restored" in one]
        assert "the state of Counting" in line
        assert "TrainerControl" not in line
