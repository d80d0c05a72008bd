"""Checkpoints to resume from, in our layout and in that of transformers, behind one interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ..core.errors import CheckpointError
from ..core.notices import note_once, warn
from ..core.state import TrainerState
from . import io, training_state, weights
from .atomic import find_damage, has_manifest, verify
from .file_names import (
    SCALER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_JSON_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)
from .tensors import read_tree
from .training_state import LoadState
from .transformers import read, write
from .transformers.detect import is_from_transformers


class Checkpoint(Protocol):
    """Everything that a run can load from a checkpoint."""

    def read_state(self) -> TrainerState: ...
    def read_arguments(self) -> dict[str, Any]: ...
    def load_weights(self, model: nn.Module, load: LoadState = ...) -> None: ...
    def load_training_parts(self, *, optimizer: Any, scheduler: Any, load: LoadState | None = None) -> None: ...
    def load_optimizer(self, optimizer: Any, load: LoadState | None = None) -> None: ...
    def load_scaler(self, scaler: Any) -> None: ...
    def load_random_state(self, rank: int, world_size: int) -> None: ...
    def read_loop_state(self, *, batches_per_epoch: int, accumulation: int, epoch_closed: bool) -> dict[str, Any]: ...


def open_checkpoint(directory: str | Path, *, verified: bool = False) -> Checkpoint:
    """Return the checkpoint in a directory, in either layout; `verified` means that its bytes were just compared.

    >>> open_checkpoint("out/checkpoint-20").read_state().global_step  # doctest: +SKIP
    20
    """
    directory = Path(directory)
    kind = TransformersCheckpoint if is_from_transformers(directory) else OwnCheckpoint
    return kind(directory, verified=verified)


class OwnCheckpoint:
    """A checkpoint in our layout."""

    def __init__(self, directory: Path, *, verified: bool = False) -> None:
        self.directory = directory
        self._verified = verified
        self._edited = False  # the state was edited by a user, and is used as it is

    def read_state(self) -> TrainerState:
        """Return the trainer's state; the whole checkpoint is verified first."""
        try:
            if not self._verified:
                verify(self.directory)
        except CheckpointError as damage:
            self._accept_edits(damage)
        return read.read_trainer_state(self.directory)

    def _accept_edits(self, damage: CheckpointError) -> None:
        """Accept weights that were divided into shards, and a `trainer_state.json` that was edited and is still valid.

        Only a checkpoint that was given by its path comes here: those found by a search have to be whole.
        """
        try:
            changed = {found.file for found in find_damage(self.directory)}
            step = read.read_trainer_state(self.directory).global_step
        except CheckpointError:
            raise damage from None
        if changed - {TRAINER_STATE_NAME, *([WEIGHTS_NAME] if weights.are_divided(self.directory) else [])}:
            raise damage
        if WEIGHTS_NAME in changed:
            warn(
                f"{WEIGHTS_NAME} in {self.directory} was divided into the files of {WEIGHTS_INDEX_NAME} after it was "
                "written: the weights are read from them, and no checksum covers them"
            )
        if TRAINER_STATE_NAME in changed:
            self._edited = True
            warn(
                f"{TRAINER_STATE_NAME} in {self.directory} was changed after it was written: the changed values are "
                f"used, and the position in the data is computed from its step {step}"
            )

    def read_arguments(self) -> dict[str, Any]:
        return _read_arguments(self.directory)

    def load_weights(self, model: nn.Module, load: LoadState = weights.load_leniently) -> None:
        weights.load_weights(model, self.directory, load)

    def load_training_parts(self, *, optimizer: Any, scheduler: Any, load: LoadState | None = None) -> None:
        training_state.load_training_parts(self.directory, optimizer=optimizer, scheduler=scheduler, load=load)

    def load_optimizer(self, optimizer: Any, load: LoadState | None = None) -> None:
        training_state.load_optimizer_alone(self.directory, optimizer, load)

    def load_scaler(self, scaler: Any) -> None:
        saved = (self.directory / SCALER_NAME).exists()  # a lost file was detected before, by its checksum
        if scaler is not None and saved:
            scaler.load_state_dict(read_tree(self.directory, "scaler"))
        elif scaler is not None:
            note_once(f"{self.directory} is not from an fp16 run: the gradient scale starts at {scaler.get_scale():g}")
        elif saved:
            note_once(f"{SCALER_NAME} of {self.directory} is not used: this run has no scaler")

    def load_random_state(self, rank: int, world_size: int) -> None:
        training_state.load_random_state(self.directory, rank, world_size)

    def read_loop_state(self, *, batches_per_epoch: int, accumulation: int, epoch_closed: bool) -> dict[str, Any]:
        progress = dict(training_state.load_loop_state(self.directory))
        if self._edited:
            step = read.read_trainer_state(self.directory).global_step
            epoch, updates = divmod(step, max(-(-batches_per_epoch // accumulation), 1))
            place = {"epoch": epoch, "batch": updates * accumulation, "stream": None, "before_read": None}
            progress.update(place=place, last_logged_step=step)
        return progress


class TransformersCheckpoint:
    """A checkpoint as transformers writes it."""

    def __init__(self, directory: Path, *, verified: bool = False) -> None:
        self.directory = directory
        self._verified = verified

    def read_state(self) -> TrainerState:
        """Return the trainer's state; it is verified only if we converted the checkpoint."""
        if has_manifest(self.directory) and not self._verified:
            verify(self.directory)
        return read.load_foreign_state(self.directory)

    def read_arguments(self) -> dict[str, Any]:
        return _read_arguments(self.directory)

    def load_weights(self, model: nn.Module, load: LoadState = weights.load_leniently) -> None:
        read.load_foreign_weights(model, self.directory, load)

    def load_training_parts(self, *, optimizer: Any, scheduler: Any, load: LoadState | None = None) -> None:
        read.load_foreign_training_parts(self.directory, optimizer=optimizer, scheduler=scheduler, load=load)

    def load_optimizer(self, optimizer: Any, load: LoadState | None = None) -> None:
        read.load_foreign_training_parts(self.directory, optimizer=optimizer, scheduler=None, load=load)

    def load_scaler(self, scaler: Any) -> None:
        read.load_foreign_scaler(self.directory, scaler)

    def load_random_state(self, rank: int, world_size: int) -> None:
        read.load_foreign_random_state(self.directory, rank, world_size)

    def read_loop_state(self, *, batches_per_epoch: int, accumulation: int, epoch_closed: bool) -> dict[str, Any]:
        return read.build_foreign_loop_state(
            self.directory,
            batches_per_epoch=batches_per_epoch,
            accumulation=accumulation,
            epoch_closed=epoch_closed,
        )


def _read_arguments(directory: Path) -> dict[str, Any]:
    """Return the arguments of the run that wrote a checkpoint; empty if they cannot be read without running code."""
    if not (directory / TRAINING_ARGS_JSON_NAME).is_file():
        return {}
    try:
        content = io.read_json(directory / TRAINING_ARGS_JSON_NAME)
    except CheckpointError:
        return {}
    return content if isinstance(content, dict) else {}


def write_transformers_files(
    directory: Path, *, optimizer: Any, scheduler: Any, scaler: Any, rank: int, world_size: int, leads: bool
) -> None:
    """Write, beside our own files, those from which transformers resumes."""
    write.export_random_state(directory, rank, world_size)
    if leads:
        write.export_training_parts(directory, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
