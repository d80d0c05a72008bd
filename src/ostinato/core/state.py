"""The progress of a run (`TrainerState`), and the requests that callbacks make of it (`TrainerControl`)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .notices import note_once


class ExportableState:
    """An object that can be exported as constructor arguments and attributes, and rebuilt from them.

    A callback that inherits from it is saved in every checkpoint.

    >>> class CountSteps(ExportableState):
    ...     def __init__(self):
    ...         self.count = 0
    ...
    ...     def state(self):
    ...         return {"args": {}, "attributes": {"count": self.count}}
    >>> CountSteps.from_state({"args": {}, "attributes": {"count": 3}}).count
    3
    """

    def state(self) -> dict[str, Any]:
        """Return the state of this object.

        Returns:
            `{"args": constructor arguments, "attributes": what has changed since}`; both must be JSON.

        Raises:
            NotImplementedError: The class does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} inherits from ExportableState and has to implement state()")

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Any:
        """Build an object from the state of another.

        Args:
            state: What `state()` returned.

        Returns:
            The object.
        """
        instance = cls(**state.get("args", {}))
        for name, value in state.get("attributes", {}).items():
            setattr(instance, name, value)
        return instance


class TensorState:
    """An object that keeps tensors. The tensors of a callback that inherits from it are saved in every checkpoint.

    They are stored in `callbacks.safetensors` beside the trainer's state, which is JSON, and restored bit for bit.
    """

    def tensor_state(self) -> dict[str, Any]:
        """Return tensors and plain values by name; empty if there is nothing to keep (yet)."""
        raise NotImplementedError(f"{type(self).__name__} inherits from TensorState and has to implement it")

    def load_tensor_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `tensor_state` returned. Called before `on_train_begin` of a resumed run."""
        raise NotImplementedError(f"{type(self).__name__} inherits from TensorState and has to implement it")


class StateError(CheckpointError, TypeError):
    """A state with a value that JSON cannot hold (transformers raises TypeError here)."""


def _build_state_error(state: TrainerState, error: TypeError) -> StateError:
    """Return an error that names what cannot be written: a callback's attribute, or a number in the log."""
    found = [
        f"{name}.{key} = {value!r}"
        for name, states in state.stateful_callbacks.items()
        for one in (states if isinstance(states, list) else [states])
        for part in one.values()
        for key, value in part.items()
        if not _is_json(value)
    ]
    found += [
        f"{key} = {value!r} in a log"
        for entry in state.log_history
        for key, value in entry.items()
        if not _is_json(value)
    ]
    return StateError(
        what=f"the trainer's state cannot be saved: {found[0] if found else error}",
        why="a checkpoint keeps it as JSON, so that it can be read without running code",
        fix="let the callback's state() return numbers, strings, lists and dicts"
        if found and "in a log" not in found[0]
        else "log plain numbers: value.item()",
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


@dataclass
class TrainerState:
    """The progress of a run. Plain data: it is `trainer_state.json` in every checkpoint."""

    epoch: float = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, float]] = field(default=None)  # type: ignore[assignment]
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, str | float | int | bool] | None = None
    stateful_callbacks: dict[str, Any] = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.log_history is None:
            self.log_history = []
        if self.stateful_callbacks is None:
            self.stateful_callbacks = {}
        elif not isinstance(self.stateful_callbacks, dict):
            self.stateful_callbacks = export_callbacks(self.stateful_callbacks)

    def save_to_json(self, json_path: str | Path) -> None:
        """Write the state as JSON.

        Args:
            json_path: The file to write.

        Raises:
            StateError: The state has a value that JSON cannot hold.
        """
        try:
            text = json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True)
        except TypeError as error:
            raise _build_state_error(self, error) from None
        Path(json_path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load_from_json(cls, json_path: str | Path) -> TrainerState:
        """Read a state that this library or transformers wrote; fields of other versions are left out.

        Args:
            json_path: The file to read.

        Returns:
            The state.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        content = json.loads(Path(json_path).read_text(encoding="utf-8"))
        return cls(**{name: value for name, value in content.items() if name in known})

    def compute_steps(self, args: Any, max_steps: int) -> None:
        """Convert intervals that are given as a fraction of the run into whole steps.

        Args:
            args: The training arguments.
            max_steps: The number of steps of the run.
        """
        for name in ("logging", "eval", "save"):
            interval = getattr(args, f"{name}_steps")
            if interval is not None:
                steps = math.ceil(max_steps * interval) if interval < 1 else interval
                setattr(self, f"{name}_steps", steps)

    def init_training_references(self, trainer: Any, max_steps: int, num_train_epochs: int, trial: Any) -> None:
        """Set what is known when training starts.

        Args:
            trainer: The trainer.
            max_steps: The number of steps of the run.
            num_train_epochs: The number of epochs of the run.
            trial: The trial of a hyper-parameter search, if any.
        """
        if trainer.hp_name is not None and trainer._trial is not None:
            self.trial_name = trainer.hp_name(trainer._trial)
        self.trial_params = getattr(trial, "params", trial) if trial is not None else None
        self.max_steps = max_steps
        self.num_train_epochs = num_train_epochs
        self.is_local_process_zero = trainer.is_local_process_zero()
        self.is_world_process_zero = trainer.is_world_process_zero()


def export_callbacks(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Return the states of the callbacks that have one, by class name; several of one class become a list."""
    exported: dict[str, Any] = {}
    for callback in callbacks:
        state = _export_state(callback) if has_state(callback) else None
        if state is None:
            continue
        name = type(callback).__name__
        if name not in exported:
            exported[name] = state
        elif isinstance(exported[name], list):
            exported[name].append(state)
        else:
            exported[name] = [exported[name], state]
    return exported


def has_state(callback: Any) -> bool:
    """Return whether a callback is an `ExportableState`, ours or transformers', or has its two methods."""
    return _declares_state(callback) or all(
        callable(getattr(callback, name, None)) for name in ("state", "from_state")
    )


def _declares_state(callback: Any) -> bool:
    return any(base.__name__ == ExportableState.__name__ for base in type(callback).__mro__)


def _export_state(callback: Any) -> dict[str, Any] | None:
    """Return the state of a callback.

    One that does not inherit from `ExportableState` has never promised JSON: its state may be left out, with a notice.
    """
    if _declares_state(callback):
        return callback.state()
    try:
        state = callback.state()
        json.dumps(state)
    except Exception as error:  # a method of this name may be for another purpose
        note_once(f"checkpoints do not hold the state of {type(callback).__name__}: state() is not JSON ({error})")
        return None
    return state if isinstance(state, dict) else None


@dataclass
class TrainerControl(ExportableState):
    """Requests that callbacks make of the loop. The loop reads them; the callback handler clears them."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    def _new_training(self) -> None:
        self.should_training_stop = False

    def _new_epoch(self) -> None:
        self.should_epoch_stop = False

    def _new_step(self) -> None:
        self.should_save = self.should_evaluate = self.should_log = False

    def state(self) -> dict[str, Any]:
        return {"args": dataclasses.asdict(self), "attributes": {}}
