"""Read checkpoints that stock transformers wrote, to resume from them.

Their files are pickles; `unpickle` reads them without running any. `training_args.bin` is an arbitrary object and not
read at all. A file that is missing, damaged or not plain is an error that names it: never a fresh optimizer instead.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import nn

from ...core.errors import CheckpointError
from ...core.notices import note_once
from ...core.random import RandomState
from ...core.state import TrainerState
from .. import io, training_state, weights
from ..file_names import TRAINER_STATE_NAME, TRAINING_ARGS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME, is_plain_name
from ..tensors import read_tree
from ..training_state import LoadState, Stateful
from .detect import (
    OPTIMIZER_PT,
    PICKLED_WEIGHTS_INDEX_NAME,
    PICKLED_WEIGHTS_NAME,
    SCALER_PT,
    SCHEDULER_PT,
    SIDECAR,
    find_random_ranks,
    format_random_name,
)
from .unpickle import read_numpy_words, read_torch_file

# ---- what a resumed run loads ----------------------------------------------------------------------------------


def load_foreign_weights(model: nn.Module, directory: str | Path, load: LoadState = weights.load_leniently) -> None:
    """Fill the model, strictly as `weights.load_weights` does, also from `pytorch_model.bin` and its shards.

    >>> load_foreign_weights(model, "out/checkpoint-20")  # doctest: +SKIP
    """
    directory = Path(directory)
    if not has_pickled_weights(directory):
        weights.load_weights(model, directory, load)
        return
    with tempfile.TemporaryDirectory(prefix="ostinato-") as scratch:
        convert_weights(directory, Path(scratch))
        try:
            weights.load_weights(model, Path(scratch), load)
        except CheckpointError as error:  # it names the copy, which is deleted by the time the message is read
            what, why = (text.replace(scratch, str(directory)) for text in (error.what, error.why))
            raise CheckpointError(what=what, why=why, fix=error.fix) from error


def load_foreign_training_parts(
    directory: str | Path,
    *,
    optimizer: Stateful,
    scheduler: Stateful | None,
    scaler: Stateful | None = None,
    load: LoadState | None = None,
) -> None:
    """Restore the state of optimizer, schedule and scaler. All files are read before the first part is changed.

    >>> load_foreign_training_parts("out/checkpoint-20", optimizer=optimizer, scheduler=scheduler)  # doctest: +SKIP
    """
    directory = Path(directory)
    state = read_optimizer(directory)
    _check_optimizer(directory, state, optimizer)
    others = []
    if scheduler is not None:
        others.append(("scheduler", scheduler, _read_matching_schedule(directory, scheduler)))
    if scaler is not None:
        others.append(("scaler", scaler, read_scaler(directory)))
    saved = {"state_dict": state, "parameters": training_state.describe_parameters(optimizer)}
    training_state.load_optimizer(directory, optimizer, saved, load)
    for name, part, its_state in others:
        training_state.load_part(directory, name, part, its_state)


def load_foreign_scaler(directory: str | Path, scaler: Stateful | None) -> None:
    """Restore the state of the gradient scaler; report a state that is not used.

    >>> load_foreign_scaler("out/checkpoint-20", torch.amp.GradScaler())  # doctest: +SKIP
    """
    directory = Path(directory)
    if scaler is None:
        if (directory / SCALER_PT).exists():
            note_once(f"{SCALER_PT} of {directory} is not used: this run has no scaler")
        return
    training_state.load_part(directory, "scaler", scaler, read_scaler(directory))


def load_foreign_random_state(directory: str | Path, rank: int, world_size: int) -> None:
    """Restore the state of this process's random streams.

    >>> load_foreign_random_state("out/checkpoint-20", rank=0, world_size=1)  # doctest: +SKIP
    """
    directory = Path(directory)
    if (directory / f"rng-{rank}.json").exists():
        training_state.load_random_state(directory, rank, world_size)
        return
    saved = len(find_random_ranks(directory))
    if saved not in (0, world_size):
        raise CheckpointError(
            what=f"the random streams in {directory} are of another number of processes",
            why=f"{saved} processes saved them, and this run has {world_size}",
            fix="resume with the same number of processes, or set a new seed",
        )
    path = directory / format_random_name(rank, world_size)
    streams, before = read_random_state(path), RandomState.capture()
    try:
        streams.keep_present_devices(str(path)).restore()
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        before.restore()
        raise _build_streams_error(path, repr(error)) from error


def load_foreign_state(directory: str | Path) -> TrainerState:
    """Return the trainer's state, without fields of other versions and without a best model that no longer exists.

    >>> load_foreign_state("out/checkpoint-20").global_step  # doctest: +SKIP
    20
    """
    directory = Path(directory)
    state = read_trainer_state(directory)
    state.best_model_checkpoint = find_best_beside(directory, state.best_model_checkpoint)
    if (directory / TRAINING_ARGS_NAME).exists():
        note_once(
            f"{TRAINING_ARGS_NAME} of {directory} is not read: it is a pickle, which runs code when it is loaded. "
            "The arguments are those given to this run."
        )
    return state


def build_foreign_loop_state(
    directory: str | Path, *, batches_per_epoch: int, accumulation: int, epoch_closed: bool = True
) -> dict[str, Any]:
    """Return what `Run.restore` needs, as far as a checkpoint of transformers has it: position, sums of the losses.

    `epoch_closed` states what no file records for a checkpoint at the very end of an epoch: whether what follows the
    epoch (evaluation, logs) had been done. It had if checkpoints are saved by epoch, not if they are saved by steps.

    The sum of the losses is that of the logs. Losses since the last log are in no file; `steps_without_loss` is the
    number of these steps, so that a mean can leave them out. The next log covers the steps from here on.

    >>> state = build_foreign_loop_state("out/checkpoint-20", batches_per_epoch=8, accumulation=1)  # doctest: +SKIP
    >>> state["place"]["epoch"]  # doctest: +SKIP
    2
    """
    directory = Path(directory)
    state = read_state(directory)
    kept = read_sidecar(directory).get("loop", {})
    if "place" in kept:
        return kept
    epoch, batch = _find_position(directory, state, batches_per_epoch, accumulation)
    if batch == 0 and epoch > 0 and not epoch_closed:
        epoch, batch = epoch - 1, batches_per_epoch
    total, logged_step = _sum_logged_losses(state["log_history"])
    unknown = max(state["global_step"] - logged_step, 0)
    if unknown:
        note_once(
            f"the losses of the {unknown} steps before step {state['global_step']} were not logged and are not in "
            f"{directory}: train_loss leaves them out"
        )
    return {
        "place": {"epoch": epoch, "batch": batch, "stream": None, "before_read": None},
        "pending_loss": torch.zeros(()),
        "total_loss": total,
        "last_logged_step": state["global_step"],
        "window_has_nonfinite": False,
        "nonfinite": {"in_a_row": 0, "first_step": 0, "all": 0},
        "steps_without_loss": unknown,
    }


# ---- the files ---------------------------------------------------------------------------------------------------


def read_trainer_state(directory: Path) -> TrainerState:
    """Return the state as it is stored, by us or by transformers; fields of other versions are left out."""
    content, known = read_state(directory), {field.name for field in dataclasses.fields(TrainerState)}
    return TrainerState(**{name: value for name, value in content.items() if name in known})


def read_state(directory: Path) -> dict[str, Any]:
    """Return `trainer_state.json`, checked as far as a run depends on it."""
    path = directory / TRAINER_STATE_NAME
    state = io.read_json(path)
    if not isinstance(state, dict):
        raise io.build_broken_error(path, f"{path.name} does not hold an object")
    state = {**state, "log_history": state.get("log_history") or [], "epoch": state.get("epoch") or 0}
    state["stateful_callbacks"] = state.get("stateful_callbacks") or {}
    step, history = state.get("global_step"), state["log_history"]
    if type(step) is not int or step < 0:
        raise io.build_broken_error(path, f"{path.name} says no step: global_step is {step!r}")
    if not _is_number(state["epoch"]) or state["epoch"] < 0:
        raise io.build_broken_error(path, f"{path.name} says no place in the data: epoch is {state['epoch']!r}")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise io.build_broken_error(path, f"log_history of {path.name} is not a list of objects")
    if not isinstance(state["stateful_callbacks"], dict):
        raise io.build_broken_error(path, f"stateful_callbacks of {path.name} is not an object")
    return state


def read_optimizer(directory: Path) -> dict[str, Any]:
    """Return the optimizer's `state_dict`."""
    state, path = _read_part(directory, OPTIMIZER_PT)
    groups, by_number = state.get("param_groups"), state.get("state")
    if not isinstance(by_number, dict) or not isinstance(groups, list) or not all(map(_is_group, groups)):
        raise io.build_broken_error(path, f"{path.name} does not hold the state of an optimizer")
    return state


def read_scheduler(directory: Path) -> dict[str, Any]:
    """Return the schedule's `state_dict`."""
    return _read_part(directory, SCHEDULER_PT)[0]


def read_scaler(directory: Path) -> dict[str, Any]:
    """Return the gradient scaler's `state_dict`."""
    return _read_part(directory, SCALER_PT)[0]


def read_random_state(path: Path) -> RandomState:
    """Return random streams, of every device that had one."""
    saved = read_torch_file(path)
    if not isinstance(saved, dict):
        raise _build_streams_error(path, f"a {type(saved).__name__} was found")
    devices = {str(kind): states for kind, states in saved.items() if kind not in ("python", "numpy", "cpu")}
    try:
        return RandomState(
            python=saved["python"],
            numpy=_convert_numpy_stream(saved["numpy"]),
            torch=saved["cpu"],
            devices={kind: [one] if isinstance(one, torch.Tensor) else list(one) for kind, one in devices.items()},
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise _build_streams_error(path, repr(error)) from error


def read_sidecar(directory: Path) -> dict[str, Any]:
    """Return what we recorded of the run when we converted it to their layout; empty for what transformers wrote."""
    if not (directory / f"{SIDECAR}.json").exists():
        return {}
    kept, expected = read_tree(directory, SIDECAR), {"loop": dict, "parts": dict, "streams": list}
    if not isinstance(kept, dict) or not all(isinstance(kept.get(name), kind) for name, kind in expected.items()):
        raise io.build_broken_error(
            directory / f"{SIDECAR}.json", f"{SIDECAR}.json does not hold {', '.join(expected)}"
        )
    return kept


def has_pickled_weights(directory: Path) -> bool:
    """Return whether the weights are in `.bin` files only."""
    if (directory / WEIGHTS_NAME).exists() or (directory / WEIGHTS_INDEX_NAME).exists():
        return False
    return bool(find_pickled_weights(directory))


def find_pickled_weights(directory: Path) -> list[Path]:
    """Return the files of `pytorch_model.bin`, of which there may be several."""
    whole, index_path = directory / PICKLED_WEIGHTS_NAME, directory / PICKLED_WEIGHTS_INDEX_NAME
    if whole.exists() or not index_path.exists():
        return [whole] if whole.exists() else []
    index = io.read_json(index_path)
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not table:
        raise io.build_broken_error(index_path, f"{index_path.name} has no weight_map")
    for name in table.values():
        if not is_plain_name(name):
            raise io.build_broken_error(
                index_path, f"{index_path.name} names {name!r}, which leads out of the directory"
            )
    return [directory / name for name in sorted(set(table.values()))]


def convert_weights(directory: Path, target: Path) -> None:
    """Write the weights of `pytorch_model.bin` as `model.safetensors`. Only this needs them in memory."""
    state: dict[str, Any] = {}
    for path in find_pickled_weights(directory):
        shard = read_torch_file(path)
        if not isinstance(shard, dict) or not all(map(_is_weight, shard.items())):
            raise io.build_broken_error(path, f"{path.name} does not hold weights by name")
        state.update(shard)
    weights.save_model(nn.Module(), target, state_dict=state)


def _is_weight(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], torch.Tensor)


def _read_part(directory: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Return a `state_dict` of theirs, from their file or, once converted, from ours."""
    path = directory / name
    ours = path.with_suffix(".json")
    if ours.exists():
        tree = read_tree(directory, ours.stem)
        state, path = tree.get("state_dict", tree) if isinstance(tree, dict) else tree, ours
    else:
        state = read_torch_file(path)
    if not isinstance(state, dict):
        raise io.build_broken_error(path, f"{path.name} does not hold a state_dict")
    return state, path


def _build_streams_error(path: Path, why: str) -> CheckpointError:
    return io.build_broken_error(path, f"{path.name} does not hold random streams: {why}")


def _convert_numpy_stream(saved: Any) -> dict[str, Any]:
    """Convert numpy's older form, a tuple, to the one that we store."""
    name, words, position, has_gauss, gauss = saved
    if name != "MT19937":
        raise ValueError(f"numpy's stream is a {name!r}")
    return {
        "bit_generator": name,
        "state": {"key": read_numpy_words(words), "pos": int(position)},
        "has_gauss": int(has_gauss),
        "gauss": float(gauss),
    }


# ---- comparison with the run ---------------------------------------------------------------------------------------

# State that has one number per number of the parameter, under the names of torch's optimizers.
_ELEMENTWISE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum")
# Settings of a group that were added to torch's optimizers over time, and what a schedule adds.
_OPTIONAL = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay", "initial_lr"}
# Of a schedule: only some versions of torch write these.
_OPTIONAL_IN_SCHEDULE = {"_is_initial", "_get_lr_called_within_step", "verbose"}


def _is_group(group: Any) -> bool:
    numbers = group.get("params") if isinstance(group, dict) else None
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def _check_optimizer(directory: Path, state: Mapping[str, Any], optimizer: Any) -> None:
    """Compare what can be compared: their file names neither the optimizer nor the parameters."""
    saved, present = state["param_groups"], optimizer.param_groups
    sizes, expected = ([len(group["params"]) for group in groups] for groups in (saved, present))
    if sizes != expected:
        raise _build_model_error(directory, f"groups of {sizes} parameters were saved, this run has {expected}")
    for was, now in zip(saved, present, strict=True):
        _check_group(directory, was, now, optimizer)
    numbers = [number for group in saved for number in group["params"]]
    parameters = [parameter for group in present for parameter in group["params"]]
    if unknown := state["state"].keys() - set(numbers):
        raise io.build_broken_error(
            directory / OPTIMIZER_PT, f"{OPTIMIZER_PT} has state of no parameter: {sorted(map(str, unknown))[:5]}"
        )
    for number, parameter in zip(numbers, parameters, strict=True):
        own = state["state"].get(number, {})
        for name in _ELEMENTWISE:
            value = own.get(name) if isinstance(own, dict) else None
            if isinstance(value, torch.Tensor) and value.shape != parameter.shape:
                raise _build_model_error(
                    directory, f"parameter {number}: {list(value.shape)} saved, {list(parameter.shape)} now"
                )


def _check_group(directory: Path, was: Mapping[str, Any], now: Mapping[str, Any], optimizer: Any) -> None:
    different = sorted(map(str, (was.keys() ^ now.keys()) - _OPTIONAL))
    decay = "decoupled_weight_decay"  # the only setting that distinguishes AdamW from Adam
    if decay in was and decay in now and was[decay] is not now[decay]:
        different.append(decay)
    if different:
        raise CheckpointError(
            what=f"the optimizer of this run is not the one in {directory}",
            why=f"{type(optimizer).__name__} and the one that was saved differ in {', '.join(different)}",
            fix="resume with the same optimizer, or start a new run from the weights alone",
        )


def _build_model_error(directory: Path, why: str) -> CheckpointError:
    return CheckpointError(
        what=f"the optimizer in {directory} belongs to another model",
        why=why,
        fix="build the model and its parameter groups as in the run that saved it",
    )


def _read_matching_schedule(directory: Path, scheduler: Stateful) -> dict[str, Any]:
    state = read_scheduler(directory)
    different = sorted(map(str, (state.keys() ^ scheduler.state_dict().keys()) - _OPTIONAL_IN_SCHEDULE))
    if different:
        raise CheckpointError(
            what=f"the scheduler of this run is not the one in {directory}",
            why=f"{type(scheduler).__name__} and the one that was saved differ in {', '.join(different)}",
            fix="resume with the same scheduler, or start a new run from the weights alone",
        )
    return state


# ---- position ------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def find_best_beside(directory: Path, best: Any) -> str | None:
    """Return the best checkpoint, which moves with the run's directory; the stored path may be of another machine."""
    if not isinstance(best, str) or not best:
        return None
    beside = directory.parent / PurePath(best.replace("\\", "/")).name
    if beside.is_dir():
        return str(beside)
    if Path(best).is_dir():
        return best
    note_once(f"the best model of {directory} was {best}, which does not exist: only its metric is known")
    return None


def _find_position(
    directory: Path, state: Mapping[str, Any], batches_per_epoch: int, accumulation: int
) -> tuple[int, int]:
    """Return the epoch, and the number within it of the next batch."""
    step, progress = state["global_step"], float(state["epoch"])
    epoch, updates = divmod(step, max(math.ceil(batches_per_epoch / accumulation), 1))
    by_steps = epoch, updates * accumulation
    whole = math.floor(progress)
    by_epoch = whole, round((progress - whole) * batches_per_epoch)
    if by_epoch[1] == batches_per_epoch:
        by_epoch = whole + 1, 0
    if by_epoch == by_steps or (step > 0 and progress == 0):
        return by_steps
    # Rows are counted in epochs, whatever the batches: this is right for other batch sizes, too.
    note_once(
        f"{directory} is at epoch {progress:.6g} after {step} steps; with the batches of this run that would be "
        f"epoch {by_steps[0]}, batch {by_steps[1]}: batch size, accumulation or data have changed. Training continues "
        f"at epoch {by_epoch[0]}, batch {by_epoch[1]} of {batches_per_epoch}."
    )
    return by_epoch


def _sum_logged_losses(history: list[dict[str, Any]]) -> tuple[float, int]:
    """Return the sum of the losses up to the last log of one, and the step of that log."""
    total, last = 0.0, 0
    for entry in history:
        loss, step = entry.get("loss"), entry.get("step")
        if isinstance(loss, (int, float)) and isinstance(step, int) and step > last:
            total, last = total + loss * (step - last), step
    return total, last
