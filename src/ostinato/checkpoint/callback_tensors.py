"""Callbacks with tensors of their own: where these are saved and loaded, and when a model gets to have them.

A checkpoint to resume from holds the weights that are trained, and the callback's beside them. What nobody resumes
from (the best model kept apart, `save_only_model`) holds the weights that were evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..callbacks.events import LendsWeights
from ..core.notices import note
from ..core.protocols import CallbackTensorHost
from ..core.state import TensorState
from . import training_state, weights


@contextmanager
def lent_weights(trainer: CallbackTensorHost) -> Iterator[None]:
    """While entered, the model has the weights that a callback lends; most of the time there is none."""
    with ExitStack() as lent:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, LendsWeights):
                lent.enter_context(callback.lending(trainer.model))
        yield


def tensor_states(trainer: CallbackTensorHost) -> dict[str, list[Any]]:
    """What callbacks remember in tensors, by class name."""
    states: dict[str, list[Any]] = {}
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorState) and (state := callback.tensor_state()):
            states.setdefault(type(callback).__name__, []).append(state)
    return states


def load_tensor_states(trainer: CallbackTensorHost, checkpoint: str | Path) -> None:
    """Give callbacks their tensors back; one that the checkpoint knows nothing of begins anew, and that is said."""
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, TensorState)]
    if not callbacks:
        return
    for callback, state in _matched(callbacks, checkpoint):
        if state is None:
            note(f"{type(callback).__name__} begins anew: {Path(checkpoint).name} holds nothing of it")
        else:
            callback.load_tensor_state(state)


def load_best(trainer: CallbackTensorHost, best: Path) -> None:
    """Put the best weights into the model: those that were evaluated, where these were lent."""
    weights.load_weights(trainer.model, best, trainer.strategy.load_model_state)
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, LendsWeights)]
    for callback, state in _matched(callbacks, best) if callbacks else ():
        if state is not None:
            callback.put_best(trainer.model, state)


def _matched(callbacks: list[Any], checkpoint: str | Path) -> list[tuple[Any, Any]]:
    saved = training_state.load_callback_tensors(checkpoint)
    waiting = {name: list(states) for name, states in saved.items()}
    return [(one, next(iter(_taken(waiting.get(type(one).__name__))), None)) for one in callbacks]


def _taken(states: list[Any] | None) -> list[Any]:
    return [states.pop(0)] if states else []
