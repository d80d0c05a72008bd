"""Who is told what, in which order, and what it may change."""

from __future__ import annotations

import gc
import random
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ostinato.callbacks.events import CLEARED_BY, EVENTS, QuietCallback, TrainerCallback
from ostinato.callbacks.flow import DefaultFlowCallback
from ostinato.callbacks.handler import CallbackHandler
from ostinato.core.random import RandomState
from ostinato.core.state import TrainerControl, TrainerState

FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
DETAILS = {"on_log": {"logs": {}}, "on_evaluate": {"metrics": {}}, "on_predict": {"metrics": {}}}


class Named(TrainerCallback):
    """Writes its name into a shared list at every step's end."""

    def __init__(self, name: str = "?", heard: list | None = None) -> None:
        self.name, self.heard = name, heard if heard is not None else []

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.heard.append(self.name)


class Alike:
    """All of a class compare equal, and are still different callbacks."""

    def __eq__(self, other):
        return type(other) is type(self)

    __hash__ = object.__hash__


class Other(Named):
    pass


class Third(Named):
    pass


def handler_of(*callbacks, **options) -> CallbackHandler:
    return CallbackHandler([DefaultFlowCallback, *callbacks], "model", "tokenizer", "optimizer", "schedule", **options)


def emit(handler: CallbackHandler, event: str = "on_step_end", control: TrainerControl | None = None):
    args = SimpleNamespace(
        logging_first_step=False, logging_strategy="no", eval_strategy="no", save_strategy="no", eval_delay=0
    )
    details = DETAILS.get(event, {})
    return getattr(handler, event)(args, TrainerState(max_steps=99), control or TrainerControl(), **details)


# ------------------------------------------------------------------------------------------------------- delivery


def test_in_order() -> None:
    heard: list = []
    handler = handler_of(Named("a", heard), Other("b", heard), Third("c", heard))
    emit(handler)
    emit(handler)
    assert heard == ["a", "b", "c"] * 2


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_arrives_with_its_context(event: str) -> None:
    got: list = []

    def listen(self, args, state, control, **kwargs):
        got.append(kwargs)

    handler = handler_of(type("Listen", (TrainerCallback,), {event: listen}))
    handler.train_dataloader, handler.eval_dataloader = "train", "eval"
    emit(handler, event)
    context = dict(
        model="model",
        processing_class="tokenizer",
        optimizer="optimizer",
        lr_scheduler="schedule",
        train_dataloader="train",
        eval_dataloader="eval",
    )
    assert got == [{**context, **DETAILS.get(event, {})}]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("listens", [True, False])
def test_flags_are_cleared_as_documented(event: str, listens: bool) -> None:
    seen: list = []

    def listen(self, args, state, control, **kwargs):
        seen.append({flag for flag in FLAGS if getattr(control, flag)})

    handler = handler_of(*([type("Listen", (TrainerCallback,), {event: listen})] if listens else []))
    for _ in range(2):  # the second time it is known who listens
        control = emit(handler, event, TrainerControl(True, True, True, True, True))
        left = set(FLAGS) - set(CLEARED_BY.get(event, ()))
        assert {flag for flag in FLAGS if getattr(control, flag)} == left
    assert seen == ([left, left] if listens else [])


def test_a_callback_may_raise_a_cleared_flag_again() -> None:
    class Again(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            control.should_log = True

    assert emit(handler_of(Again), "on_log").should_log


def test_returned_control_is_adopted() -> None:
    class Replace(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            return TrainerControl(should_save=True)

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            self.saw = control

    look = Look()
    given = TrainerControl(should_log=True)
    result = emit(handler_of(Replace, look), control=given)
    assert result == TrainerControl(should_save=True)
    assert look.saw is result
    assert given.should_log


def test_context_is_read_at_the_moment() -> None:
    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, optimizer=None, **kwargs):
            self.saw = optimizer

    look = Look()
    handler = handler_of(look)
    emit(handler)
    handler.optimizer = "another"
    emit(handler)
    assert look.saw == "another"


def test_event_of_a_subclass() -> None:
    class Own(TrainerCallback):
        def on_rollout(self, args, state, control, **kwargs):
            self.heard = kwargs["reward"]

    own = Own()
    handler = CallbackHandler([own, type("DefaultFlowCallback", (Own,), {})], None, None, None, None)
    handler.call_event("on_rollout", None, TrainerState(), TrainerControl(), reward=3)
    assert own.heard == 3


def test_error_in_a_callback_comes_out() -> None:
    class Broken(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        emit(handler_of(Broken))


# ------------------------------------------------------------------------------------------- the list of callbacks


def test_the_list_is_public_and_may_change() -> None:
    heard: list = []
    handler = handler_of(Named("a", heard))
    emit(handler)
    handler.callbacks.append(Other("b", heard))
    emit(handler)
    handler.callbacks.reverse()
    emit(handler)
    handler.callbacks = [Third("c", heard)]
    emit(handler)
    handler.callbacks[0] = Named("d", heard)
    emit(handler)
    handler.callbacks.clear()
    emit(handler)
    assert heard == ["a", "a", "b", "b", "a", "c", "d"]


def test_replaced_by_an_equal_one() -> None:
    class Equal(Alike, Named):
        pass

    heard: list = []
    handler = handler_of(Equal("old", heard))
    emit(handler)
    handler.callbacks[1] = Equal("new", heard)
    emit(handler)
    assert heard == ["old", "new"]


def test_method_of_an_instance_is_heard() -> None:
    heard: list = []
    callback = TrainerCallback()
    callback.on_step_end = lambda args, state, control, **kwargs: heard.append("instance")
    emit(handler_of(callback))
    assert heard == ["instance"]


def test_method_given_to_an_instance_later_is_heard() -> None:
    heard: list = []
    listening, deaf = Named("class", heard), QuietCallback()
    handler = handler_of(listening, deaf)
    emit(handler)
    listening.on_step_end = lambda *rest, **kwargs: heard.append("replaced")
    deaf.on_step_end = lambda *rest, **kwargs: heard.append("added")
    emit(handler)
    assert heard == ["class", "replaced", "added"]


def test_method_patched_on_the_class_later_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list = []
    handler = handler_of(Named("original", heard))
    emit(handler)
    monkeypatch.setattr(Named, "on_step_end", lambda self, *rest, **kwargs: heard.append("patched"))
    emit(handler)
    assert heard == ["original", "patched"]


def test_quiet_callbacks_may_change_too() -> None:
    """Of them it is remembered who listens, as long as they are the same."""

    class Quiet(Alike, Named, QuietCallback):
        pass

    heard: list = []
    handler = handler_of(Quiet("a", heard))
    emit(handler)
    emit(handler)
    handler.callbacks[1] = Quiet("b", heard)
    emit(handler)
    handler.callbacks.append(QuietCallback())
    handler.callbacks.insert(0, Quiet("c", heard))
    emit(handler)
    handler.callbacks = handler.callbacks[:1]
    emit(handler)
    handler.pop_callback(Quiet)
    emit(handler)
    assert heard == ["a", "a", "b", "c", "b", "c"]


def test_quiet_callbacks_patched_between_runs_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list = []
    handler = handler_of(QuietCallback())
    emit(handler)
    monkeypatch.setattr(QuietCallback, "on_step_end", lambda self, *rest, **kwargs: heard.append("patched"), False)
    handler.on_train_begin(None, TrainerState(), TrainerControl())
    emit(handler)
    assert heard == ["patched"]


def test_a_callback_that_was_taken_out_is_let_go() -> None:
    handler = handler_of(QuietCallback())
    emit(handler)
    gone = weakref.ref(handler.pop_callback(handler.callbacks[1]))
    gc.collect()
    assert gone() is None


def test_add_pop_remove() -> None:
    named, other = Named("a"), Other("b")
    handler = handler_of(named)
    handler.add_callback(other)
    handler.add_callback(Third)
    assert handler.callback_list.splitlines() == ["DefaultFlowCallback", "Named", "Other", "Third"]
    assert handler.pop_callback(Other) is other
    assert handler.pop_callback(named) is named
    assert handler.pop_callback(named) is None
    assert handler.pop_callback(Other) is None
    third = handler.callbacks[1]
    handler.remove_callback(third)
    handler.add_callback(Third)
    handler.remove_callback(Third)
    handler.remove_callback(Third)  # by class: nothing to take out is no error
    assert handler.callback_list == "DefaultFlowCallback"
    with pytest.raises(ValueError):
        handler.remove_callback(third)


def test_second_of_a_class_is_said_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list = []
    handler = handler_of(Named("a", heard))
    capsys.readouterr()
    handler.add_callback(Named("b", heard))
    assert "Named is already among the callbacks" in capsys.readouterr().err
    emit(handler)
    assert heard == ["a", "b"]


def test_handler_without_flow_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    CallbackHandler([], None, None, None, None)
    assert "no DefaultFlowCallback" in capsys.readouterr().err
    handler_of()
    assert capsys.readouterr().err == ""


# --------------------------------------------------------------------------------------------------------- streams


def draw(*_, **__) -> None:
    torch.rand(1)
    random.random()
    np.random.rand()


def numbers() -> tuple:
    return (torch.rand(1).item(), random.random(), np.random.rand())


def moved_by(*callbacks, isolate_rng: bool) -> bool:
    """Whether an event moves any of the streams."""
    handler = handler_of(*callbacks, isolate_rng=isolate_rng)
    state = RandomState.capture()
    expected = numbers()
    state.restore()
    for _ in range(2):
        emit(handler)
    moved = numbers() != expected
    state.restore()
    return moved


class Draws(TrainerCallback):
    on_step_end = draw


class QuietButDraws(QuietCallback):
    on_step_end = draw


def test_streams_are_put_back() -> None:
    assert not moved_by(Draws, isolate_rng=True)
    assert moved_by(Draws, isolate_rng=False)


def test_quiet_callbacks_are_taken_at_their_word() -> None:
    """No snapshot is made for them: it would cost more than they do."""
    assert moved_by(QuietButDraws, isolate_rng=True)
    assert not moved_by(QuietButDraws, Draws, isolate_rng=True)


def test_streams_are_put_back_after_an_error() -> None:
    class Broken(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            draw()
            raise KeyError

    state = RandomState.capture()
    expected = numbers()
    state.restore()
    with pytest.raises(KeyError):
        emit(handler_of(Broken, isolate_rng=True))
    assert numbers() == expected
    state.restore()
