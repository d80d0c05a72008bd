"""The parts of a checkpoint. Each function is the default body of one of the Trainer's saving hooks.

`write` receives the tensors of each file: it writes them, or keeps a copy to be written later (`checkpoint.snapshot`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..arguments.settings import SaveSettings, format_arguments_json
from ..core.notices import note_once
from ..core.protocols import SaveHost
from ..optim.schedule_free import use_averaged_weights
from . import training_state, weights
from .callback_tensors import collect_tensor_states, use_callback_weights
from .distributed_tensors import find_shard
from .file_names import TRAINER_STATE_NAME, TRAINING_ARGS_JSON_NAME
from .layouts import write_transformers_files
from .streamed_weights import stream_weights
from .tensors import TensorWriter, write_tensors, write_tree
from .transformers.write import export_training_args


def write_parts(
    trainer: SaveHost,
    directory: Path,
    settings: SaveSettings,
    write: TensorWriter | None = None,
    progress: dict[str, Any] | None = None,
) -> None:
    """Write everything that a checkpoint holds; without `write`, through the Trainer's hooks."""
    progress = gather_progress(trainer) if progress is None else progress
    run = trainer._run
    write_weights(trainer, directory, write, as_evaluated=settings.only_model)
    if not settings.only_model:
        with nullcontext() if run is None else run.updates.use_next_streams():
            write_training_parts(trainer, directory, settings, write)
    if settings.writes_here:
        save_progress(trainer, directory, progress, write or write_tensors)
    if not settings.only_model and (settings.writes_here or trainer.strategy.is_sharded):
        tensors = collect_tensor_states(trainer)
        training_state.save_callback_tensors(directory, tensors, write or write_tensors, find_shard(trainer.strategy))


def write_training_parts(
    trainer: SaveHost, directory: Path, settings: SaveSettings, write: TensorWriter | None
) -> None:
    """Write what the next step needs besides the weights; without `write`, through the Trainer's hooks."""
    if write is None:
        trainer._save_optimizer_and_scheduler(str(directory))
        trainer._save_scaler(str(directory))
        trainer._save_rng_state(str(directory))
    else:
        save_optimizer_and_scheduler(trainer, directory, write)
        save_scaler(trainer, directory, write)
        save_random_state(trainer, directory, write)
    if settings.for_transformers:
        save_for_transformers(trainer, directory)


def gather_progress(trainer: SaveHost) -> dict[str, Any]:
    """Return the sums over all processes, and the position in the data; nothing for a loop of a subclass's own.

    They are gathered before any process writes, since one alone may fail.
    """
    return {} if trainer._run is None else trainer._run.export_progress(trainer.strategy)


def write_weights(trainer: SaveHost, directory: Path, write: TensorWriter | None, *, as_evaluated: bool) -> None:
    """Write the model, as it is trained or as it is evaluated; without `write`, through the Trainer's hooks.

    With a schedule-free optimizer it is always written as it is evaluated: the other weights are part of its state.
    """
    with use_averaged_weights(trainer.optimizer), use_callback_weights(trainer) if as_evaluated else nullcontext():
        if write is None:
            trainer.save_model(str(directory), _internal_call=True)
        elif SaveSettings.of(trainer.args).writes_here or trainer.strategy.is_sharded:
            save_weights(trainer, directory, write=write)


def save_weights(
    trainer: SaveHost,
    directory: Path,
    *,
    state_dict: Mapping[str, Any] | None = None,
    write: TensorWriter = write_tensors,
) -> None:
    """Write the model, what is needed to load it elsewhere, and the arguments it was trained with.

    Where the model is divided among processes and `state_dict` is not given, all of them have to call it.
    """
    processing_class = find_processing_class(trainer.processing_class, trainer.data_collator)

    def save(state: Mapping[str, Any] | None, write: TensorWriter) -> None:
        weights.save_model(trainer.model, directory, state_dict=state, processing_class=processing_class, write=write)

    shard = find_shard(trainer.strategy)
    if shard is None or state_dict is not None:
        save(state_dict, write)
    else:
        stream_weights(trainer.model, save, shard)
        if shard.rank > 0:
            return
    (directory / TRAINING_ARGS_JSON_NAME).write_text(format_arguments_json(trainer.args) + "\n", encoding="utf-8")
    if SaveSettings.of(trainer.args).for_transformers:
        export_training_args(directory)


def find_processing_class(given: Any, data_collator: Any) -> Any:
    """Return what prepares inputs for the model: the given one, or else the tokenizer that the collator has."""
    if given is not None:
        return given
    tokenizer = getattr(data_collator, "tokenizer", None)
    if callable(getattr(tokenizer, "save_pretrained", None)):
        note_once("processing_class is not given: the collator's tokenizer is saved with the model")
    return tokenizer


def save_optimizer_and_scheduler(trainer: SaveHost, directory: Path, write: TensorWriter = write_tensors) -> None:
    """Write the state of the optimizer and the schedule."""
    shard = find_shard(trainer.strategy)
    if SaveSettings.of(trainer.args).writes_here or shard is not None:
        optimizer = trainer._require_optimizer()
        training_state.save_training_parts(
            directory,
            optimizer=optimizer,
            scheduler=trainer.lr_scheduler,
            optimizer_state=trainer.strategy.optimizer_state(optimizer),
            write=write,
            shard=shard,
        )


def save_scaler(trainer: SaveHost, directory: Path, write: TensorWriter = write_tensors) -> None:
    """Write the state of the gradient scaler, if there is one."""
    scaler = getattr(trainer.precision, "scaler", None)
    if scaler is not None and SaveSettings.of(trainer.args).writes_here:
        write_tree(scaler.state_dict(), directory, "scaler", write)


def save_random_state(trainer: SaveHost, directory: Path, write: TensorWriter = write_tensors) -> None:
    """Write the state of the random streams of this process."""
    settings = SaveSettings.of(trainer.args)
    training_state.save_random_state(directory, settings.rank, settings.world_size, write)


def save_for_transformers(trainer: SaveHost, directory: Path) -> None:
    """Write the files from which stock transformers resumes."""
    settings, optimizer = SaveSettings.of(trainer.args), trainer._require_optimizer()
    with use_averaged_weights(optimizer):  # which are in the model's file, and transformers has no others
        write_transformers_files(
            directory,
            optimizer=optimizer,
            scheduler=trainer.lr_scheduler,
            scaler=getattr(trainer.precision, "scaler", None),
            rank=settings.rank,
            world_size=settings.world_size,
            leads=settings.writes_here,
        )


def save_progress(
    trainer: SaveHost, directory: Path, progress: dict[str, Any], write: TensorWriter = write_tensors
) -> None:
    """Write the progress of the run: state, callbacks, sums, position in the data."""
    trainer.state.stateful_callbacks = trainer._export_callback_states()
    trainer.state.save_to_json(directory / TRAINER_STATE_NAME)
    training_state.save_loop_state(directory, progress, write)
