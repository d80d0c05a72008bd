"""The events of a run, and the handler that delivers them.

on_init_end
on_train_begin
  on_epoch_begin
    on_step_begin
      on_substep_end                 after each micro-batch but the last
      on_pre_optimizer_step          gradients are clipped
      on_optimizer_step              weights are updated, gradients still there
    on_step_end
    on_log, on_prediction_step*, on_evaluate, on_save      when the control asks for them
  on_epoch_end
on_train_end
on_prediction_step*, on_predict      by `Trainer.predict`
on_push_begin                        before an upload
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from operator import is_not
from typing import Any, Literal, NamedTuple, get_args

from ..core.notices import warn
from ..core.random import undisturbed
from ..core.state import TrainerControl, TrainerState

Event = Literal[
    "on_init_end",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_evaluate",
    "on_predict",
    "on_save",
    "on_log",
    "on_prediction_step",
    "on_push_begin",
]
EVENTS: tuple[Event, ...] = get_args(Event)

# Which flags an event clears before it is delivered, so that a callback may raise them again.
CLEARED_BY: dict[str, tuple[str, ...]] = {
    "on_train_begin": ("should_training_stop",),
    "on_epoch_begin": ("should_epoch_stop",),
    "on_step_begin": ("should_log", "should_evaluate", "should_save"),
    "on_evaluate": ("should_evaluate",),
    "on_save": ("should_save",),
    "on_log": ("should_log",),
}


class TrainerCallback:
    """Override any event. Set flags on `control` to steer the run; returning it is optional.

    Every event also receives, by keyword: `model`, `processing_class`, `optimizer`, `lr_scheduler`,
    `train_dataloader`, `eval_dataloader`; `on_log` gets `logs`, `on_evaluate` and `on_predict` get `metrics`.

    >>> class StopWhenGoodEnough(TrainerCallback):
    ...     def on_log(self, args, state, control, logs=None, **kwargs):
    ...         if logs.get("loss", 1.0) < 0.01:
    ...             control.should_training_stop = True
    """

    def on_init_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The trainer has been constructed."""

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Training begins."""

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Training has ended."""

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An epoch begins."""

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An epoch has ended."""

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An optimizer step begins: before its first micro-batch."""

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Gradients are complete and clipped; the weights have not moved yet."""

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The weights have moved; the gradients are still there."""

    def on_substep_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """A micro-batch has been accumulated, and more follow in this step."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An optimizer step has ended; `state.global_step` counts it."""

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An evaluation has ended; its numbers are in `metrics`."""

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any, **kwargs: Any) -> Any:
        """A prediction has ended."""

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """`checkpoint-{state.global_step}` is whole on disk."""

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Numbers were logged; they are in `logs`."""

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """One batch of an evaluation or prediction has been computed."""

    def on_push_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An upload to the hub begins."""


# What an event does to callbacks that do not override it.
IGNORED: dict[str, Callable[..., Any]] = {event: getattr(TrainerCallback, event) for event in EVENTS}


class QuietCallback(TrainerCallback):
    """A callback known to draw no random numbers: delivering an event to it needs no snapshot of the streams."""


class TidiesUp(TrainerCallback):
    """A callback that leaves something behind which `on_train_end` would take away."""

    def broke_off(self) -> None:
        """Training ended before its end, of which no event tells."""
        raise NotImplementedError(f"{type(self).__name__} inherits from TidiesUp and has to implement broke_off")


class LendsWeights(TrainerCallback):
    """A callback that has other weights for a model than those it is trained with.

    Evaluations and predictions are made with them, and so are weights that nobody resumes from.
    """

    def lending(self, model: Any) -> AbstractContextManager[None]:
        """While entered, the model has them; afterwards the very same weights as before."""
        raise NotImplementedError(f"{type(self).__name__} inherits from LendsWeights and has to implement lending")

    def put_best(self, model: Any, saved: Mapping[str, Any]) -> None:
        """Put those of the best checkpoint, as `tensor_state` saved them, into a model for good."""


Listener = Callable[..., Any]


class Audience(NamedTuple):
    """Who listens to an event."""

    callbacks: list[TrainerCallback]  # all that were asked
    listeners: list[Listener]
    is_quiet: bool  # no listener draws random numbers
    stays: bool  # none of the callbacks is the user's

    @classmethod
    def of(cls, callbacks: list[TrainerCallback], event: str) -> Audience:
        ignored = IGNORED.get(event)
        listeners: list[Any] = [
            method
            for callback in callbacks
            if getattr(method := getattr(callback, event, ignored), "__func__", method) is not ignored
        ]
        is_quiet = all(isinstance(getattr(method, "__self__", None), QuietCallback) for method in listeners)
        return cls(list(callbacks), listeners, is_quiet, all(isinstance(one, QuietCallback) for one in callbacks))


class CallbackHandler(TrainerCallback):
    """Delivers each event to every callback that listens to it, in order.

    With `isolate_rng` the random streams are put back after callbacks that might draw from them.
    """

    def __init__(
        self,
        callbacks: Iterable[TrainerCallback | type[TrainerCallback]],
        model: Any,
        processing_class: Any,
        optimizer: Any,
        lr_scheduler: Any,
        *,
        isolate_rng: bool = False,
    ) -> None:
        self.callbacks: list[TrainerCallback] = []
        self.model = model
        self.processing_class = processing_class
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.train_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.isolate_rng = isolate_rng
        self._audiences: dict[str, Audience] = {}
        for callback in callbacks:
            self.add_callback(callback)
        if not any(type(callback).__name__ == "DefaultFlowCallback" for callback in self.callbacks):
            warn(
                "no DefaultFlowCallback among the callbacks: nothing will ask to log, evaluate, save or stop; "
                "add it back with trainer.add_callback(DefaultFlowCallback)"
            )

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Add one, as a class or an instance. A second one of the same class is said, and kept."""
        added = callback() if isinstance(callback, type) else callback
        if any(type(present) is type(added) for present in self.callbacks):
            warn(
                f"a {type(added).__name__} is already among the callbacks, and a second one was added; both will run: "
                f"{self.callback_list.splitlines()}"
            )
        self.callbacks.append(added)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Take one out, by class or instance, and return it."""
        found = self._find(callback)
        if found is not None:
            self.remove_callback(found)
        return found

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Take one out, by class or instance."""
        if isinstance(callback, type):
            self.pop_callback(callback)
        else:
            self.callbacks.remove(callback)
            self._audiences.clear()  # it may hold a model

    def _find(self, wanted: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        for callback in self.callbacks:
            if (isinstance(wanted, type) and isinstance(callback, wanted)) or callback is wanted:
                return callback
        return None

    @property
    def callback_list(self) -> str:
        """The class names, one per line."""
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    # ---- delivery ------------------------------------------------------------------------------

    def call_event(
        self, event: str, args: Any, state: TrainerState, control: TrainerControl, **details: Any
    ) -> TrainerControl:
        """Tell every listener; hand on the control that the last of them returned."""
        # Most callbacks ignore most events, and an ignored event should cost next to nothing. Who listens is asked
        # anew each time: `callbacks` is a public list, and methods are patched on classes and instances. Our own are
        # not patched in the middle of a run: where there are no others, it is enough that they are the very same.
        if event == "on_train_begin":
            self._audiences.clear()
        known, present = self._audiences.get(event), self.callbacks
        if (
            known is None
            or not known.stays
            or len(known.callbacks) != len(present)
            or any(map(is_not, known.callbacks, present))
        ):
            known = self._audiences[event] = Audience.of(present, event)
        if not known.listeners:
            return control
        if self.isolate_rng and not known.is_quiet:
            with undisturbed():
                return self._deliver(known.listeners, args, state, control, details)
        return self._deliver(known.listeners, args, state, control, details)

    def _deliver(
        self, listeners: list[Listener], args: Any, state: Any, control: TrainerControl, details: dict[str, Any]
    ) -> TrainerControl:
        for listener in listeners:
            result = listener(
                args,
                state,
                control,
                model=self.model,
                processing_class=self.processing_class,
                optimizer=self.optimizer,
                lr_scheduler=self.lr_scheduler,
                train_dataloader=self.train_dataloader,
                eval_dataloader=self.eval_dataloader,
                **details,
            )
            if result is not None:
                control = result
        return control

    def on_log(  # type: ignore[override]
        self, args: Any, state: TrainerState, control: TrainerControl, logs: dict[str, float], **kwargs: Any
    ) -> TrainerControl:
        control.should_log = False
        return self.call_event("on_log", args, state, control, logs=logs, **kwargs)

    def on_evaluate(  # type: ignore[override]
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: dict[str, float], **kwargs: Any
    ) -> TrainerControl:
        control.should_evaluate = False
        return self.call_event("on_evaluate", args, state, control, metrics=metrics, **kwargs)

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any, **kwargs: Any
    ) -> TrainerControl:
        return self.call_event("on_predict", args, state, control, metrics=metrics, **kwargs)


def _delivering(event: Event) -> Callable[..., TrainerControl]:
    cleared = CLEARED_BY.get(event, ())

    def deliver(
        self: CallbackHandler, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        for flag in cleared:
            setattr(control, flag, False)
        return self.call_event(event, args, state, control, **kwargs)

    deliver.__name__ = deliver.__qualname__ = event
    return deliver


for _event in EVENTS:
    if _event not in vars(CallbackHandler):
        setattr(CallbackHandler, _event, _delivering(_event))
