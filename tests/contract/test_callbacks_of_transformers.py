"""A script that imports its trainer from here, and still imports its callbacks from transformers."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.core.notices import heard_by
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
    with heard_by(lambda kind, text: said.append(text)):
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
