"""Deliver the events of a run to the callbacks that override them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_not
from typing import Any, NamedTuple

import torch
from torch import nn

from ..core import accelerator
from ..core.notices import warn
from ..core.protocols import EventHost
from ..core.random import preserve_rng
from ..core.state import TrainerControl, TrainerState
from .events import (
    CLEARED_BY,
    EVENTS,
    IGNORED,
    Event,
    QuietCallback,
    TrainerCallback,
    are_counterparts,
    is_callback_of,
)

Listener = Callable[..., Any]


class Audience(NamedTuple):
    """The callbacks that listen to an event."""

    callbacks: list[TrainerCallback]  # all that were examined
    listeners: list[Listener]
    is_quiet: bool  # no listener draws random numbers
    stays: bool  # all callbacks are ours, none is the user's

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
    """Deliver each event to every callback that overrides it, in order.

    Args:
        callbacks: The callbacks, as classes or instances.
        model: Passed to callbacks with every event, as are the next three.
        processing_class: The tokenizer or processor.
        optimizer: The optimizer.
        lr_scheduler: The schedule.
        isolate_rng: Restore the random streams after callbacks that might draw from them.

    >>> from ostinato import DefaultFlowCallback
    >>> handler = CallbackHandler([DefaultFlowCallback, TrainerCallback], None, None, None, None)
    >>> handler.callback_list.splitlines()
    ['DefaultFlowCallback', 'TrainerCallback']
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
        self._devices: list[torch.device] | None = None  # those of the model; None: not known
        for callback in callbacks:
            self.add_callback(callback)
        if not any(type(callback).__name__ == "DefaultFlowCallback" for callback in self.callbacks):
            warn(
                "no DefaultFlowCallback among the callbacks: nothing will ask to log, evaluate, save or stop; "
                "add it back with trainer.add_callback(DefaultFlowCallback)"
            )

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Add a callback. A second one of the same class is kept, with a warning.

        Args:
            callback: A class or an instance.
        """
        added = callback() if isinstance(callback, type) else callback
        if any(are_counterparts(type(present), type(added)) for present in self.callbacks):
            warn(
                f"a {type(added).__name__} is already among the callbacks, and a second one was added; both will run: "
                f"{self.callback_list.splitlines()}"
            )
        self.callbacks.append(added)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Remove a callback and return it.

        Args:
            callback: A class or an instance.

        Returns:
            The removed callback; None if there is none.
        """
        found = self._find(callback)
        if found is not None:
            self.remove_callback(found)
        return found

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Remove a callback.

        Args:
            callback: A class or an instance.
        """
        if isinstance(callback, type):
            self.pop_callback(callback)
        else:
            self.callbacks.remove(callback)
            self._audiences.clear()  # it may hold a model

    def _find(self, wanted: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        for callback in self.callbacks:
            if callback is wanted or (isinstance(wanted, type) and is_callback_of(callback, wanted)):
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
        """Call every listener of an event.

        Args:
            event: The name of the event.
            args: The training arguments.
            state: The state of the trainer.
            control: The control.
            **details: Further keywords for the listeners.

        Returns:
            The control that the last listener returned, or else the given one.
        """
        # Most callbacks ignore most events, and an ignored event should cost next to nothing. The listeners are looked
        # up each time: `callbacks` is a public list, and methods are patched on classes and instances. Our own
        # callbacks are not patched during a run: where there are no others, comparing their identities is enough.
        if event == "on_train_begin":
            self._audiences.clear()
            self._devices = _list_accelerators(self.model)
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
            # A process may see many devices. Training draws from those of its model, and reading others takes time.
            with preserve_rng(self._devices):
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


def _list_accelerators(model: Any) -> list[torch.device] | None:
    """Return the devices of a model that have random streams of their own; None if none is known."""
    if not isinstance(model, nn.Module):
        return None
    devices = {parameter.device for parameter in model.parameters()}
    return [device for device in devices if accelerator.is_accelerator(device)] or None


def _build_delivery(event: Event) -> Callable[..., TrainerControl]:
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
        setattr(CallbackHandler, _event, _build_delivery(_event))


def emit(trainer: EventHost, event: Event, **details: Any) -> None:
    """Deliver an event to every callback; set the trainer's control to the one that is returned."""
    deliver = getattr(trainer.callback_handler, event)
    trainer.control = deliver(trainer.args, trainer.state, trainer.control, **details)
