"""The parts of a run that a checkpoint holds besides the model: optimizer, schedule, random streams, the loop.

Each function handles one part. It reads from or writes into a given directory; `atomic.atomic_directory` makes the
directory appear whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from ..core.errors import CheckpointError
from ..core.notices import note_once
from ..core.random import RandomState
from ..optim.schedule_free import is_training
from . import io
from .distributed_tensors import Shard, StoredTensor
from .file_names import (
    CALLBACKS_NAME,
    LOOP_NAME,
    OPTIMIZER_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_JSON_NAME,
    TRAINING_ARGS_NAME,
)
from .tensors import TensorWriter, read_tree, write_tensors, write_tree

__all__ = [
    "CALLBACKS_NAME",
    "LOOP_NAME",
    "OPTIMIZER_NAME",
    "SCALER_NAME",
    "SCHEDULER_NAME",
    "TRAINER_STATE_NAME",
    "TRAINING_ARGS_JSON_NAME",
    "TRAINING_ARGS_NAME",
    "load_callback_tensors",
    "load_loop_state",
    "load_optimizer_alone",
    "load_random_state",
    "load_training_parts",
    "save_callback_tensors",
    "save_loop_state",
    "save_random_state",
    "save_training_parts",
]

_OPTIMIZER, _SCHEDULER, _SCALER, _LOOP, _CALLBACKS = (
    name.removesuffix(".json") for name in (OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, LOOP_NAME, CALLBACKS_NAME)
)


LoadState = Callable[[Any, Any], Any]  # loads a state into a part


class Stateful(Protocol):
    """Any object with a state that can be saved and restored."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def save_training_parts(
    directory: str | Path,
    *,
    optimizer: Stateful,
    scheduler: Stateful | None,
    scaler: Stateful | None = None,
    optimizer_state: dict[str, Any] | None = None,
    write: TensorWriter = write_tensors,
    shard: Shard | None = None,
) -> None:
    """Write what is needed, besides the weights, to take the next step as if the run had not stopped.

    `optimizer_state` replaces the optimizer's own. With `shard`, every process writes its part of it.

    >>> save_training_parts("out", optimizer=optimizer, scheduler=scheduler)  # doctest: +SKIP
    """
    directory = Path(directory)
    described = {**_describe(optimizer, optimizer_state), "parameters": describe_parameters(optimizer)}
    if is_training(optimizer):  # the weights in the model's file are the averaged ones
        described["training_weights"] = _list_parameters(optimizer)
    write_tree(described, directory, _OPTIMIZER, write, shard)
    if shard is not None and shard.rank > 0:
        return
    for name, part in ((_SCHEDULER, scheduler), (_SCALER, scaler)):
        if part is not None:
            write_tree(_describe(part), directory, name, write)


def load_training_parts(
    directory: str | Path,
    *,
    optimizer: Stateful,
    scheduler: Stateful | None,
    scaler: Stateful | None = None,
    load: LoadState | None = None,
) -> None:
    """Restore the state of every part. All files are read before the first part is changed; a missing one is an error.

    `load` loads the state into the optimizer, for one whose state is distributed over processes.

    >>> load_training_parts("out/checkpoint-20", optimizer=optimizer, scheduler=scheduler)  # doctest: +SKIP
    """
    directory = Path(directory)
    saved_optimizer = _read_part(directory, _OPTIMIZER, optimizer)
    _check_parameters(directory, saved_optimizer.get("parameters"), describe_parameters(optimizer))
    others = []
    for name, part in ((_SCHEDULER, scheduler), (_SCALER, scaler)):
        if part is not None:
            others.append((name, part, _read_part(directory, name, part)["state_dict"]))
    if scheduler is None and (directory / SCHEDULER_NAME).exists():
        note_once(f"{SCHEDULER_NAME} of {directory} is not used: this run has no scheduler")
    saved_optimizer = _read_optimizer_state(saved_optimizer, optimizer)
    load_optimizer(directory, optimizer, saved_optimizer, load)
    _load_training_weights(optimizer, saved_optimizer.get("training_weights"))
    for name, part, state in others:
        load_part(directory, name, part, state)


def load_optimizer_alone(directory: str | Path, optimizer: Stateful, load: LoadState | None = None) -> None:
    """Restore the state of an optimizer, settings included, and change nothing else.

    >>> load_optimizer_alone("out/checkpoint-20", optimizer)  # doctest: +SKIP
    """
    directory = Path(directory)
    saved = _read_part(directory, _OPTIMIZER, optimizer)
    _check_parameters(directory, saved.get("parameters"), describe_parameters(optimizer))
    load_optimizer(directory, optimizer, _read_optimizer_state(saved, optimizer), load)


def save_random_state(directory: str | Path, rank: int, world_size: int, write: TensorWriter = write_tensors) -> None:
    """Write the state of this process's random streams, as `rng-<rank>`.

    >>> save_random_state("out", rank=0, world_size=1)
    """
    streams = RandomState.capture().export()
    write_tree({"world_size": world_size, "streams": streams}, Path(directory), f"rng-{rank}", write)


def load_random_state(directory: str | Path, rank: int, world_size: int) -> None:
    """Restore the state of this process's random streams.

    >>> load_random_state("out/checkpoint-20", rank=0, world_size=1)  # doctest: +SKIP
    """
    directory = Path(directory)
    name = f"rng-{rank}"
    saved = read_tree(directory, name)
    path = directory / f"{name}.json"
    if not isinstance(saved, dict) or not isinstance(saved.get("streams"), dict):
        raise io.build_broken_error(path, f"{path.name} does not hold random streams")
    if saved.get("world_size") != world_size:
        raise CheckpointError(
            what=f"the random streams in {directory} are of another number of processes",
            why=f"{saved.get('world_size')} processes saved them, and this run has {world_size}",
            fix="resume with the same number of processes, or set a new seed",
        )
    try:
        RandomState.read(saved["streams"]).keep_present_devices(str(path)).restore()
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise io.build_broken_error(path, f"{path.name} does not hold random streams: {error}") from error


def save_loop_state(directory: str | Path, mapping: Mapping[str, Any], write: TensorWriter = write_tensors) -> None:
    """Write the running sums of the loop; floats and tensors are restored bit for bit.

    >>> save_loop_state("out", {"loss_sum": 1.5, "steps": 3})
    """
    write_tree(dict(mapping), Path(directory), _LOOP, write)


def load_loop_state(directory: str | Path) -> dict[str, Any]:
    """Return what `save_loop_state` was given.

    >>> load_loop_state("out/checkpoint-20")  # doctest: +SKIP
    {'loss_sum': 1.5, 'steps': 3}
    """
    state = read_tree(Path(directory), _LOOP)
    if not isinstance(state, dict):
        raise io.build_broken_error(Path(directory) / LOOP_NAME, f"{LOOP_NAME} does not hold a mapping")
    return state


def save_callback_tensors(
    directory: str | Path,
    states: Mapping[str, list[Any]],
    write: TensorWriter = write_tensors,
    shard: Shard | None = None,
) -> None:
    """Write the tensors that callbacks keep, by class name; several of one class in their order.

    >>> save_callback_tensors("out", {"EMACallback": [{"updates": 3, "averages": {"weight": torch.zeros(2)}}]})
    """
    if states:
        write_tree(dict(states), Path(directory), _CALLBACKS, write, shard)


def load_callback_tensors(
    directory: str | Path, parameters: Mapping[str, torch.Tensor] | None = None
) -> dict[str, list[Any]]:
    """Return what `save_callback_tensors` was given; empty where no callback had any.

    Tensors under the name of a parameter that is divided among processes are divided in the same way.

    >>> load_callback_tensors("out/checkpoint-20")  # doctest: +SKIP
    {'EMACallback': [{'updates': 3, 'averages': {'weight': tensor([0., 0.])}}]}
    """
    path = Path(directory) / CALLBACKS_NAME
    if not path.is_file():
        return {}
    states = _read_by_name(read_tree(Path(directory), _CALLBACKS, lazily=True), parameters or {})
    if not isinstance(states, dict) or not all(isinstance(each, list) for each in states.values()):
        raise io.build_broken_error(path, f"{path.name} does not hold the states of callbacks")
    return states


def _describe(part: Stateful, state: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"class": type(part).__name__, "state_dict": part.state_dict() if state is None else state}


def _read_part(directory: Path, name: str, part: Stateful) -> dict[str, Any]:
    saved = read_tree(directory, name, lazily=name == _OPTIMIZER)
    path = directory / f"{name}.json"
    if not isinstance(saved, dict) or not isinstance(saved.get("state_dict"), dict):
        raise io.build_broken_error(path, f"{path.name} does not hold a state_dict")
    if saved.get("class") != type(part).__name__:
        raise CheckpointError(
            what=f"the {name} of this run is not the one in {directory}",
            why=f"{saved.get('class')} was saved, and this run has {type(part).__name__}",
            fix=f"resume with the same {name}, or start a new run from the weights alone",
        )
    return saved


def load_part(
    directory: Path, name: str, part: Stateful, state: dict[str, Any], load: LoadState | None = None
) -> None:
    try:
        part.load_state_dict(state) if load is None else load(part, state)
    except (ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            what=f"the {name} does not accept the state in {directory}",
            why=str(error) or repr(error),
            fix=f"resume with the same {name} and the same settings, or start a new run from the weights alone",
        ) from error


def _list_parameters(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters in the order in which `state_dict` numbers them."""
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]


def describe_parameters(optimizer: Any) -> list[dict[str, Any]]:
    return [{"shape": list(p.shape), "dtype": str(p.dtype)} for p in _list_parameters(optimizer)]


def _check_parameters(directory: Path, saved: Any, present: list[dict[str, Any]]) -> None:
    """Compare shapes. torch compares only the number of parameters, and would load the state of one into another."""
    path = directory / OPTIMIZER_NAME
    if not isinstance(saved, list) or not all(isinstance(p, dict) and "shape" in p and "dtype" in p for p in saved):
        raise io.build_broken_error(path, f"{path.name} does not list its parameters")
    shapes, expected = [p["shape"] for p in saved], [p["shape"] for p in present]
    if shapes == expected:
        return
    pairs = enumerate(zip(shapes, expected, strict=False))  # up to the shorter one; both lengths are reported anyway
    different = [f"parameter {index}: {was} saved, {now} now" for index, (was, now) in pairs if was != now]
    raise CheckpointError(
        what=f"the optimizer in {directory} belongs to another model",
        why="; ".join([f"{len(shapes)} parameters saved, {len(expected)} now", *different[:5]]),
        fix="build the model and its parameter groups as in the run that saved it",
    )


def _read_by_name(value: Any, parameters: Mapping[str, torch.Tensor], name: Any = None) -> Any:
    """Return a state with the tensors read, each divided as the parameter under whose name it is."""
    if isinstance(value, dict):
        return {key: _read_by_name(item, parameters, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_read_by_name(item, parameters, name) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return _read_stored(value, parameters.get(name) if isinstance(name, str) else None)


def _read_stored(value: Any, like: Any = None) -> Any:
    """Return a state with the tensors read: of those that are divided as the parameter `like`, this process's part."""
    if isinstance(value, StoredTensor):
        return value.read_like(like)
    if isinstance(value, dict):
        return {key: _read_stored(item, like) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_read_stored(item, like) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _read_optimizer_state(saved: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    parameters, state = _list_parameters(optimizer), saved["state_dict"]
    by_index = state.get("state")
    if isinstance(by_index, dict):
        state = {
            **state,
            "state": {
                index: _read_stored(one, parameters[index] if type(index) is int and index < len(parameters) else None)
                for index, one in by_index.items()
            },
        }
    weights = saved.get("training_weights")
    if weights is not None:
        weights = [_read_stored(weight, like) for weight, like in zip(weights, parameters, strict=True)]
    return {**saved, "state_dict": _read_stored(state), "training_weights": weights}


def load_optimizer(directory: Path, optimizer: Any, saved: dict[str, Any], load: LoadState | None = None) -> None:
    load_part(directory, _OPTIMIZER, optimizer, saved["state_dict"], load)
    by_index = saved["state_dict"].get("state")
    states = getattr(optimizer, "state", None)
    if not isinstance(by_index, dict) or not isinstance(states, dict):
        return
    for index, parameter in enumerate(_list_parameters(optimizer)):
        if str(parameter.dtype) != saved["parameters"][index]["dtype"]:
            note_once(f"the optimizer state in {directory} is converted to {parameter.dtype}, as the parameters are")
        elif index in by_index and parameter in states:
            _undo_casts(states[parameter], by_index[index])


def _load_training_weights(optimizer: Any, weights: list[torch.Tensor] | None) -> None:
    """Load the weights with which a schedule-free optimizer trains; others train with those in the model's file."""
    if weights is not None:
        with torch.no_grad():
            for parameter, weight in zip(_list_parameters(optimizer), weights, strict=True):
                parameter.copy_(weight)


def _undo_casts(loaded: Any, saved: Any) -> None:
    """Undo the casts of torch, which casts all state to the parameter's type.

    That applies to float32 averages of bfloat16 weights, and to counters. Nothing changed between saving and loading,
    so nothing may be rounded.
    """
    if isinstance(loaded, dict) and isinstance(saved, dict):
        keys: Any = [key for key in saved if key in loaded]
    elif isinstance(loaded, list) and isinstance(saved, list) and len(loaded) == len(saved):
        keys = range(len(saved))
    else:
        return
    for key in keys:
        was, now = saved[key], loaded[key]
        if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
            if was.dtype != now.dtype and was.shape == now.shape:
                loaded[key] = was.to(now.device)
        else:
            _undo_casts(now, was)
