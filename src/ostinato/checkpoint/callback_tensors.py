"""Tensors that callbacks keep: saving and loading them, and the weights that callbacks provide to a model.

A checkpoint to resume from holds the weights that are trained, and the callback's beside them. A directory that is not
resumed from (the best model kept apart, `save_only_model`) holds the weights that were evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    callbacks = _find_stateful(trainer)
    saved = _load_saved(trainer, checkpoint) if callbacks else {}
    for callback, state in _match_states(callbacks, saved):
        if state is None:
            note(f"{type(callback).__name__} starts from the beginning: {Path(checkpoint).name} has no state for it")
        else:
            callback.load_tensor_state(state)


def restore_tensor_states(trainer: CallbackTensorHost, states: dict[str, list[Any]]) -> None:
    """Restore the tensors of callbacks from what `collect_tensor_states` returned."""
    for callback, state in _match_states(_find_stateful(trainer), states):
        if state is not None:
            callback.load_tensor_state(state)


def load_best(trainer: CallbackTensorHost, best: Path) -> None:
    """Load the best weights into the model: the evaluated ones, if a callback provided these."""
    weights.load_weights(trainer.model, best, trainer.strategy.load_model_state)
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, SwapsWeights)]
    saved = _load_saved(trainer, best) if callbacks else {}
    for callback, state in _match_states(callbacks, saved):
        if state is not None:
            callback.load_best_weights(trainer.model, state)


def _load_saved(trainer: CallbackTensorHost, directory: str | Path) -> dict[str, list[Any]]:
    return training_state.load_callback_tensors(directory, dict(trainer.model.named_parameters()))


def _find_stateful(trainer: CallbackTensorHost) -> list[TensorState]:
    return [one for one in trainer.callback_handler.callbacks if isinstance(one, TensorState)]


def _match_states(callbacks: Sequence[Any], saved: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    waiting = {name: list(states) for name, states in saved.items()}
    return [(one, next(iter(_taken(waiting.get(type(one).__name__))), None)) for one in callbacks]


def _taken(states: list[Any] | None) -> list[Any]:
    return [states.pop(0)] if states else []
