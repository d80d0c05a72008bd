"""What a run did, in a form that can be compared: events, logs, weights, outputs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.support.digests import Digest
from tests.support.run_files import OF_EVERY_RUN

EVENTS = (
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
)

FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")


class Event(NamedTuple):
    """One call of a callback: when it came, which flags were up, and what it was given."""

    name: str
    global_step: int
    epoch: float
    flags: tuple[str, ...]
    keywords: tuple[str, ...]


def make_recorder(base: type) -> Any:
    """A callback, derived from the library's own `base`, that writes every event down."""

    def __init__(self: Any) -> None:
        self.events = []
        self.contexts = {}

    def record(name: str) -> Any:
        def on_event(self: Any, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            flags = tuple(flag for flag in FLAGS if getattr(control, flag))
            self.events.append(Event(name, state.global_step, state.epoch, flags, tuple(sorted(keywords))))
            self.contexts.setdefault(name, {key: type(value).__name__ for key, value in keywords.items()})

        return on_event

    return type("Recorder", (base,), {"__init__": __init__, **{name: record(name) for name in EVENTS}})()


@dataclass
class Record:
    """The comparable remains of a run."""

    library: str
    log_history: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    output: Any = None  # TrainOutput
    state: dict[str, Any] = field(default_factory=dict)
    result: Any = None  # whatever the script returned
    files: list[str] = field(default_factory=list)
    recorded: bool = False  # read from a file, not observed just now

    def logged(self, key: str) -> list[Any]:
        """The values logged under a name, in order."""
        return [entry[key] for entry in self.log_history if key in entry]


def record_of(api: Any, result: Any = None) -> Record:
    """Take down the last trainer that a script built."""
    built = any(result is trainer for trainer in api.trainers)
    record = Record(api.name, result=None if built else result)
    found = [path for path in Path(api.output_dir).glob("**/*") if path.is_file() and path.name not in OF_EVERY_RUN]
    record.files = sorted(str(path.relative_to(api.output_dir)) for path in found)
    if api.trainers:
        trainer = api.trainers[-1]
        record.log_history = [dict(entry) for entry in trainer.state.log_history]
        record.events = list(api.recorders[-1].events)
        record.weights = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
        record.state = _comparable_state(trainer.state)
    if api.train_outputs:
        record.output = api.train_outputs[-1]
    return record


def _comparable_state(state: Any) -> dict[str, Any]:
    values = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    del values["log_history"]
    if values["best_model_checkpoint"] is not None:
        values["best_model_checkpoint"] = Path(values["best_model_checkpoint"]).name
    del values["stateful_callbacks"]  # compared where it matters, in what checkpoints keep
    return values


def is_time(key: str) -> bool:
    """Whether a logged number depends on the clock."""
    return key.endswith(("_runtime", "_per_second", "_time"))


def first_difference(a: Any, b: Any, path: str = "") -> str | None:
    """Where two nested values differ, bit for bit; numbers that depend on the clock are only compared by key."""
    if isinstance(a, Digest) or isinstance(b, Digest):
        return _other_digest(a, b, path)
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return f"{path}: keys {list(a)} != {list(b)}"
        pairs = [(f"{path}.{key}", a[key], b[key]) for key in a if not is_time(str(key))]
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
        return None if same else f"{path}: {_about(a)} != {_about(b)}"
    elif isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        return None if same else f"{path}: {_about(a)} != {_about(b)}"
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {len(a)} entries != {len(b)} entries"
        pairs = [(f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return None
    else:
        same_kind = isinstance(a, type(b)) or isinstance(b, type(a))
        return None if same_kind and a == b else f"{path}: {a!r} ({type(a).__name__}) != {b!r} ({type(b).__name__})"
    return next((found for name, x, y in pairs if (found := first_difference(x, y, name))), None)


def _other_digest(a: Any, b: Any, path: str) -> str | None:
    """One of two tensors or arrays was recorded, by its digest."""
    facts = [one if (one := Digest.of(value)) is None else one.facts for value in (a, b)]
    if facts[0] == facts[1]:
        return None
    shown = [_about(value) if isinstance(value, (torch.Tensor, np.ndarray)) else repr(value) for value in (a, b)]
    return f"{path}: {shown[0]} != {shown[1]} (`make contract` shows the numbers on both sides)"


def _about(value: Any) -> str:
    return f"{value.dtype}{tuple(value.shape)} {value.reshape(-1)[:4].tolist()}"


def assert_same(a: Any, b: Any, what: str = "value") -> None:
    """Two nested values are bitwise equal."""
    found = first_difference(a, b, what)
    assert found is None, found


def differences(a: Record, b: Record) -> list[str]:
    """Everything in which two runs differ, one line per subject; numbers read off a clock do not count."""
    subjects = {
        "log keys": ([list(entry) for entry in a.log_history], [list(entry) for entry in b.log_history]),
        "log_history": (a.log_history, b.log_history),
        "weights": (a.weights, b.weights),
        "state": (a.state, b.state),
        "train output": (tuple(a.output or ()), tuple(b.output or ())),
        "result": (a.result, b.result),
    }
    found = [first_difference(x, y, name) for name, (x, y) in subjects.items()]
    return [line for line in [_first_other_event(a, b), *found] if line]


def _first_other_event(a: Record, b: Record) -> str | None:
    """Same events in the same order, at the same step and epoch, with the same flags up?"""
    for i, (x, y) in enumerate(zip(a.events, b.events, strict=False)):
        if x[:4] != y[:4]:
            before = [event.name for event in a.events[max(0, i - 3) : i]]
            return f"event {i}, after {before}: {tuple(x[:4])} != {tuple(y[:4])}"
    return None if len(a.events) == len(b.events) else f"events: {len(a.events)} != {len(b.events)}"


def assert_same_run(a: Record, b: Record) -> None:
    """Two runs cannot be told apart, except by the clock: logs, events, weights, state, output, result."""
    found = differences(a, b)
    names = [f"{one.library} (recorded; `make contract` runs it)" if one.recorded else one.library for one in (a, b)]
    assert not found, "\n".join([" != ".join(names), *found])
