"""Tensors that callbacks keep: saving and loading them, and the weights that callbacks provide to a model.

A checkpoint to resume from holds the weights that are trained, and the callback's beside them. A directory that is not
resumed from (the best model kept apart, `save_only_model`) holds the weights that were evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..callbacks.events import SwapsWeights
from ..core.notices import note
from ..core.protocols import CallbackTensorHost
from ..core.state import TensorState
from . import training_state, weights


@contextmanager
def use_callback_weights(trainer: CallbackTensorHost) -> Iterator[None]:
    """Give the model the weights that a callback provides, inside the block; usually there are none."""
    with ExitStack() as lent:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, SwapsWeights):
                lent.enter_context(callback.swap_weights(trainer.model))
        yield


def collect_tensor_states(trainer: CallbackTensorHost) -> dict[str, list[Any]]:
    """Return the tensors that callbacks keep, by class name."""
    states: dict[str, list[Any]] = {}
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorState) and (state := callback.tensor_state()):
            states.setdefault(type(callback).__name__, []).append(state)
    return states


def load_tensor_states(trainer: CallbackTensorHost, checkpoint: str | Path) -> None:
    """Restore the tensors of callbacks. A callback that the checkpoint does not contain starts anew, with a notice."""
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, TensorState)]
    if not callbacks:
        return
    for callback, state in _match_states(callbacks, checkpoint):
        if state is None:
            note(f"{type(callback).__name__} starts from the beginning: {Path(checkpoint).name} has no state for it")
        else:
            callback.load_tensor_state(state)


def load_best(trainer: CallbackTensorHost, best: Path) -> None:
    """Load the best weights into the model: the evaluated ones, if a callback provided these."""
    weights.load_weights(trainer.model, best, trainer.strategy.load_model_state)
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, SwapsWeights)]
    for callback, state in _match_states(callbacks, best) if callbacks else ():
        if state is not None:
            callback.load_best_weights(trainer.model, state)


def _match_states(callbacks: list[Any], checkpoint: str | Path) -> list[tuple[Any, Any]]:
    saved = training_state.load_callback_tensors(checkpoint)
    waiting = {name: list(states) for name, states in saved.items()}
    return [(one, next(iter(_taken(waiting.get(type(one).__name__))), None)) for one in callbacks]


def _taken(states: list[Any] | None) -> list[Any]:
    return [states.pop(0)] if states else []
