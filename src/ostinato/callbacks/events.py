"""The events of a run, and the base class of callbacks.

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

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

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

# The flags that an event clears before it is delivered, so that a callback may set them again.
CLEARED_BY: dict[str, tuple[str, ...]] = {
    "on_train_begin": ("should_training_stop",),
    "on_epoch_begin": ("should_epoch_stop",),
    "on_step_begin": ("should_log", "should_evaluate", "should_save"),
    "on_evaluate": ("should_evaluate",),
    "on_save": ("should_save",),
    "on_log": ("should_log",),
}


class TrainerCallback:
    """The base class of callbacks: override any event, and set flags on `control` to steer the run.

    Every event receives the training arguments, the state of the run and the control. It may return the control;
    returning nothing keeps the one it was given. By keyword it also receives: `model`, `processing_class`,
    `optimizer`, `lr_scheduler`, `train_dataloader`, `eval_dataloader`; `on_log` gets `logs`, `on_evaluate` and
    `on_predict` get `metrics`.

    >>> class StopWhenGoodEnough(TrainerCallback):
    ...     def on_log(self, args, state, control, logs=None, **kwargs):
    ...         if logs.get("loss", 1.0) < 0.01:
    ...             control.should_training_stop = True
    """

    def on_init_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of the trainer's construction."""

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the beginning of training."""

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of training."""

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the beginning of an epoch."""

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of an epoch."""

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the beginning of an optimizer step, before its first micro-batch."""

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle complete and clipped gradients, before the weights change."""

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle changed weights; the gradients still exist."""

    def on_substep_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of a micro-batch after which more follow in this step."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of an optimizer step; `state.global_step` counts it."""

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of an evaluation; its numbers are in `metrics`."""

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any, **kwargs: Any) -> Any:
        """Handle the end of a prediction."""

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle a new checkpoint: `checkpoint-{state.global_step}` is whole on disk."""

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle logged numbers; they are in `logs`."""

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the end of one batch of an evaluation or prediction."""

    def on_push_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Handle the beginning of an upload to the hub."""


# The methods of callbacks that do not override an event.
IGNORED: dict[str, Callable[..., Any]] = {event: getattr(TrainerCallback, event) for event in EVENTS}


def are_counterparts(one: type, other: type) -> bool:
    """Return whether two classes are the same callback: one class, or classes of one name here and in transformers.

    A script may import its callbacks from transformers and its trainer from here, or the reverse.

    >>> are_counterparts(transformers.PrinterCallback, ostinato.PrinterCallback)  # doctest: +SKIP
    True
    """
    libraries = {kind.__module__.partition(".")[0] for kind in (one, other)}
    return one is other or (one.__name__ == other.__name__ and libraries <= _LIBRARIES)


def is_callback_of(callback: Any, kind: type) -> bool:
    """Return whether a callback, given as a class or an instance, is of a class or of its counterpart."""
    own = callback if isinstance(callback, type) else type(callback)
    return issubclass(own, kind) or any(are_counterparts(base, kind) for base in own.__mro__)


_LIBRARIES = {__name__.partition(".")[0], "transformers"}


class QuietCallback(TrainerCallback):
    """A callback that draws no random numbers: delivering an event to it needs no snapshot of the streams."""


class CleansUp(TrainerCallback):
    """A callback that changes something which `on_train_end` would undo."""

    def clean_up(self) -> None:
        """Clean up after training that ended early, for which there is no event."""
        raise NotImplementedError(f"{type(self).__name__} inherits from CleansUp and has to implement clean_up")


class SwapsWeights(TrainerCallback):
    """A callback that has other weights for a model than those it is trained with.

    They are used for evaluations and predictions, and saved where weights are not resumed from.
    """

    def swap_weights(self, model: Any) -> AbstractContextManager[None]:
        """Give the model these weights inside the block; restore the very same weights as before afterwards."""
        raise NotImplementedError(
            f"{type(self).__name__} inherits from SwapsWeights and has to implement swap_weights"
        )

    def load_best_weights(self, model: Any, saved: Mapping[str, Any]) -> None:
        """Load the weights of the best checkpoint, as `tensor_state` saved them, into a model permanently."""
