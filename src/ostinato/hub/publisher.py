"""Upload a model and its checkpoints to the hub, and report what could not be uploaded.

Nothing here stops a run. Files are staged in the training thread (`hub.staging`) and uploaded in another. Results are
collected at the next save, or at the end. A failed upload gives one warning and is tried again with the next save;
what is still missing at the end is reported with the command that uploads it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from ..arguments.settings import HubSettings
from ..checkpoint.atomic import has_manifest
from ..checkpoint.file_names import (
    ADAPTER_CONFIG_NAME,
    BEST_MODEL_NAME,
    CALLBACKS_NAME,
    CONFIG_NAME,
    LOCK_NAME,
    LOOP_NAME,
    MANIFEST_NAME,
    OPTIMIZER_NAME,
    PREFIX_CHECKPOINT_DIR,
    RUN_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_JSON_NAME,
    TRAINING_ARGS_NAME,
)
from ..checkpoint.identity import list_moved_directories, step_of
from ..checkpoint.save_parts import find_processing_class
from ..checkpoint.weights import hide_progress_bars
from ..core.choices import HubStrategy
from ..core.notices import warn
from ..core.run_files import JOURNAL_NAME, REPORT_NAME, VERIFY_DIRECTORY
from ..core.state import TrainerState
from . import staging
from .repository import ClientProgressBars, Repository
from .uploads import PushInProgress, Upload, Uploads, finish_at_exit

CREATION_TIMEOUT = 10.0  # seconds that a constructor waits for the repository

# Files of a checkpoint that are the model's, as in transformers; what prepares its inputs comes with them.
_MODEL_FILES = (
    CONFIG_NAME,
    "generation_config.json",
    "model*.safetensors",
    "model*.safetensors.index.json",
    ADAPTER_CONFIG_NAME,
    "adapter_model*.safetensors",
    TRAINING_ARGS_JSON_NAME,
    TRAINING_ARGS_NAME,
)
# Files of a checkpoint from which a run continues. A library may copy them into the output directory.
_TRAINING_STATE_FILES = (
    *(
        f"{Path(name).stem}.{kind}"
        for name in (OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, LOOP_NAME, CALLBACKS_NAME)
        for kind in ("json", "safetensors")
    ),
    "rng-*",
    RUN_NAME,
    MANIFEST_NAME,
)
# Files of an output directory besides the model, and `_private` files, as in transformers.
_PRIVATE_FILES = (
    "_*",
    f"{PREFIX_CHECKPOINT_DIR}-*",
    BEST_MODEL_NAME,
    LOCK_NAME,
    f"{staging.PREFIX}*",
    f".{PREFIX_CHECKPOINT_DIR}-*",
    f".{BEST_MODEL_NAME}.*",
    VERIFY_DIRECTORY,
    JOURNAL_NAME,  # these contain paths and commands of this machine
    REPORT_NAME,
)


Source = tuple[Path, tuple[str, ...], bool]  # a folder, patterns to exclude, whether it is never written to


@dataclass(frozen=True)
class Commit:
    """One commit: its content, and where it goes."""

    sources: tuple[Source, ...]  # later ones override earlier ones
    message: str
    place: str  # the path in the repository; empty: its root
    revision: str | None
    checkpoint: Path | None = None  # its source; None: newer than any checkpoint


@dataclass(frozen=True)
class Push:
    """A commit that is being uploaded."""

    commit: Commit
    upload: Upload


class Publisher:
    """The repository of one trainer, uploads in progress, and checkpoints still to upload."""

    def __init__(self, repository: Repository, output_path: Path) -> None:
        self.repository = repository
        self.output_path = output_path
        self.uploads = Uploads()
        self.in_progress: list[Push] = []
        self.pending: dict[str, Path] = {}  # by place in the repository: the checkpoint that should be there
        self.last_error: BaseException | None = None  # of the upload that ended last
        self._bars = ClientProgressBars()
        self._staged: list[staging.StagedFolder] = []
        self._has_warned = self._has_removed_leftovers = False
        self._processing_files: tuple[Any, frozenset[str]] = (None, frozenset())

    def create_repository(self) -> None:
        """Create the repository; wait a short time for its full name."""
        upload = self.uploads.start(self.repository.create_if_missing, timeout=CREATION_TIMEOUT)
        self.uploads.wait(upload)
        if upload.error is not None:
            by_hand = self.repository.format_command(self.output_path, message="End of training")
            self._warn_once(upload.error, more=f"; to upload after training: {by_hand}")

    def push(self, commit: Commit, *, is_blocking: bool = False) -> Push | None:
        """Stage a commit and upload it; return None if there is no disk space."""
        staged = self._stage(commit.sources)
        if staged is None:
            return None
        send = partial(
            self.repository.upload,
            staged.folder,
            message=commit.message,
            path_in_repo=commit.place,
            revision=commit.revision,
        )
        (self._bars.restore if is_blocking else self._bars.disable)()
        push = Push(commit, self.uploads.start(send, size=staged.size, on_end=lambda: staged.remove()))
        self.in_progress.append(push)
        return push

    def collect_finished(self, *, warns: bool = True) -> None:
        """Remove uploads that have ended, and warn of those that failed."""
        for push in [push for push in self.in_progress if push.upload.is_done]:
            self.in_progress.remove(push)
            self.last_error = push.upload.error
            if self.last_error is not None:
                if warns:
                    self._warn_once(self.last_error)
                continue
            self._has_warned = False
            if push.commit.checkpoint in (None, self.pending.get(push.commit.place)):
                self.pending.pop(push.commit.place, None)
        if not self.in_progress:
            self._bars.restore()

    def wait(self) -> None:
        """Wait until no upload is in progress, or the last has taken too long."""
        self.uploads.wait(*(push.upload for push in self.in_progress))
        self.collect_finished()

    def list_processing_files(self, processing_class: Any) -> frozenset[str]:
        """Return the names of the files that a tokenizer or processor saves."""
        save = getattr(processing_class, "save_pretrained", None)
        if callable(save) and self._processing_files[0] is not processing_class:
            with TemporaryDirectory(prefix="ostinato-") as folder, hide_progress_bars():
                save(folder)
                self._processing_files = processing_class, frozenset(os.listdir(folder))
        return self._processing_files[1] if callable(save) else frozenset()

    def release(self, directory: Path) -> None:
        """Unlink staged files from `directory` before it is written to, so that uploads stay as they are."""
        for staged in self._staged:
            staged.release(directory)

    def format_command(self, commit: Commit) -> str:
        """Return the command that uploads a commit."""
        source, left_out, _ = commit.sources[-1]
        there = [
            f"{pattern}/*" if any(path.is_dir() for path in source.glob(pattern)) else pattern
            for pattern in left_out
            if any(source.glob(pattern))
        ]
        return self.repository.format_command(
            source, path_in_repo=commit.place, revision=commit.revision, message=commit.message, exclude=there
        )

    def _stage(self, sources: Sequence[Source]) -> staging.StagedFolder | None:
        self._staged = [one for one in self._staged if one.remove.alive]
        if not self._has_removed_leftovers:
            self._has_removed_leftovers = True
            staging.remove_leftovers(self.output_path, keep={one.folder for one in self._staged})
        staged = None
        try:
            staged = staging.StagedFolder(self.output_path)
            for source, left_out, is_sealed in sources:
                staged.add_folder(source, link_all=is_sealed, exclude=partial(staging.matches_any, patterns=left_out))
        except OSError as error:
            warn(f"nothing is uploaded: the files could not be staged in {self.output_path}: {error}")
            if staged is not None:
                staged.remove()
            return None
        self._staged.append(staged)
        return staged

    def _warn_once(self, error: BaseException, more: str = "") -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"could not upload to {self.repository.id or self.repository.name}: "
                f"{self.repository.format_reason(error)}; training continues, and the next save retries the upload "
                f"(shown once){more}"
            )


class HubHost(Protocol):
    """A trainer whose model is uploaded."""

    args: Any
    state: TrainerState
    processing_class: Any
    data_collator: Any
    hub_model_id: str | None
    push_in_progress: PushInProgress | None
    _publishing: Publisher | None

    @property
    def _output_path(self) -> Path: ...

    def init_hf_repo(self, token: str | None = None) -> None: ...

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    def create_model_card(self, *args: Any, **kwargs: Any) -> None: ...

    def is_world_process_zero(self) -> bool: ...


# ---- what the Trainer's methods do ---------------------------------------------------------------------------------


def init_repository(trainer: HubHost, token: str | None) -> None:
    """Create or find the repository and store its name; warn if the hub does not answer."""
    if not trainer.is_world_process_zero():
        return
    settings = HubSettings.of(trainer.args)
    repository = Repository(settings.name, token if token is not None else settings.token, settings.private)
    repository.check_name()
    trainer._publishing = publisher = Publisher(repository, trainer._output_path)
    publisher.create_repository()
    trainer.hub_model_id = repository.id or repository.name
    trainer.push_in_progress = None


def push_from_checkpoint(trainer: HubHost, folder: Path) -> None:
    """Upload a saved checkpoint, unless another upload is in progress: then the next save, or the end, does."""
    settings = HubSettings.of(trainer.args)
    if not trainer.is_world_process_zero() or settings.strategy == HubStrategy.END:
        return
    publisher = _get_publisher(trainer)
    publisher.uploads.abandon_if_late()
    publisher.collect_finished()
    publisher.pending[""] = folder
    if settings.strategy == HubStrategy.CHECKPOINT:
        publisher.pending["last-checkpoint"] = folder
    elif settings.strategy == HubStrategy.ALL_CHECKPOINTS:
        publisher.pending[folder.name] = folder
    if settings.always or not publisher.in_progress:
        _push_pending(trainer, publisher, settings)


def _push_pending(trainer: HubHost, publisher: Publisher, settings: HubSettings) -> None:
    in_progress = {(push.commit.place, push.commit.checkpoint) for push in publisher.in_progress}
    commits = [
        _build_commit(trainer, publisher, settings, place, folder)
        for place, folder in sorted(publisher.pending.items(), key=lambda pending: pending[0] != "")  # the model first
        if folder.is_dir() and (place, folder) not in in_progress
    ]
    if commits:
        _expose_progress(trainer, publisher, [publisher.push(commit) for commit in commits])


def _build_commit(trainer: HubHost, publisher: Publisher, settings: HubSettings, place: str, folder: Path) -> Commit:
    """Return the commit of a checkpoint, or of its model and the run's other files for the repository's root."""
    message = _format_message(trainer, folder, by_epochs=settings.by_epochs)
    if place:
        return Commit(((folder, (), True),), f"{message}, checkpoint", place, settings.revision, folder)
    processing_class = find_processing_class(trainer.processing_class, trainer.data_collator)
    model = _list_model_files(folder, publisher.list_processing_files(processing_class))
    return Commit((_list_output_files(publisher), model), message, place, settings.revision, folder)


def _list_output_files(publisher: Publisher) -> Source:
    """Return the output directory without what is private; of a checkpoint that was copied into it, the model."""
    left_out = (*_PRIVATE_FILES, *(path.name for path in list_moved_directories(publisher.output_path)))
    copied = _TRAINING_STATE_FILES if has_manifest(publisher.output_path) else ()
    return publisher.output_path, (*left_out, *copied), False


def _list_model_files(folder: Path, processing_files: Collection[str]) -> Source:
    """Return a checkpoint without what does not belong to the model: the state of the run, and files of subclasses."""
    left_out = [
        path.name
        for path in sorted(folder.iterdir())
        if path.name not in processing_files
        and not staging.matches_any(path.name, _MODEL_FILES)
        and not (path / ADAPTER_CONFIG_NAME).exists()  # an adapter with a name of its own
    ]
    return folder, tuple(map(glob.escape, left_out)), True


def finish_current_push(trainer: HubHost) -> None:
    """Wait for uploads, upload what was skipped meanwhile, and warn of what is missing and how to add it."""
    publisher, settings = trainer._publishing, HubSettings.of(trainer.args)
    if publisher is None:
        return
    publisher.wait()
    if publisher.pending and publisher.last_error is None:
        _push_pending(trainer, publisher, settings)
        publisher.wait()
    if publisher.pending and publisher.last_error is not None:
        pending, publisher.pending = publisher.pending, {}
        commits = [_build_commit(trainer, publisher, settings, *one) for one in pending.items() if one[1].is_dir()]
        gone = [place for place, folder in pending.items() if not folder.is_dir()]
        _warn_about_missing(
            publisher, "training is not affected, but not everything was uploaded to the hub", commits, gone
        )


def push_to_hub(
    trainer: HubHost, message: str, token: str | None, revision: str | None, card: dict[str, Any], *, blocks: bool
) -> Any:
    """Save the model, write its card, upload both; return the commit, or None if the upload failed."""
    settings = HubSettings.of(trainer.args)
    if trainer.is_world_process_zero() and (trainer._publishing is None or trainer.hub_model_id is None):
        trainer.init_hf_repo(token=token)
    trainer.save_model(_internal_call=True)
    if not trainer.is_world_process_zero():
        return None
    publisher = _get_publisher(trainer)
    if token is not None:
        publisher.repository.token = token
    card.setdefault("model_name", (publisher.repository.id or settings.name).rpartition("/")[2])
    trainer.create_model_card(**card)
    publisher.collect_finished()
    commit = Commit(
        (_list_output_files(publisher),), message, "", revision if revision is not None else settings.revision
    )
    push = publisher.push(commit, is_blocking=blocks)
    if push is None:
        return None
    if not blocks:
        _expose_progress(trainer, publisher, [push])
        finish_at_exit(publisher.uploads, push.upload)
        return push.upload.future
    publisher.uploads.wait(push.upload)
    publisher.collect_finished(warns=False)
    if push.upload.error is None:
        return push.upload.future.result()
    _warn_about_missing(publisher, f"{message!r} was not uploaded, and is kept in {publisher.output_path}", [commit])
    return None


def _get_publisher(trainer: HubHost) -> Publisher:
    if trainer._publishing is None:
        trainer.init_hf_repo()
    assert trainer._publishing is not None
    trainer._publishing.output_path = trainer._output_path  # arguments may have been changed since
    return trainer._publishing


def _expose_progress(trainer: HubHost, publisher: Publisher, pushes: Sequence[Push | None]) -> None:
    sent = [push.upload for push in pushes if push is not None]
    trainer.push_in_progress = PushInProgress(
        [upload.future for upload in sent], wait=partial(publisher.uploads.wait, *sent)
    )


def _warn_about_missing(publisher: Publisher, what: str, commits: Sequence[Commit], gone: Sequence[str] = ()) -> None:
    """Warn of what is missing, why, and with which command to add it."""
    lines = [what]
    if publisher.last_error is not None:
        lines = [f"{what}: {publisher.repository.format_reason(publisher.last_error)}"]
    if gone:
        lines.append(f"deleted locally before it was uploaded: {', '.join(gone)}")
    if commits:
        lines += [
            "to upload it, log in (`hf auth login`) or set HF_TOKEN, and run:",
            *map(publisher.format_command, commits),
        ]
    warn("\n  ".join(lines))


def _format_message(trainer: HubHost, folder: Path, *, by_epochs: bool) -> str:
    """Return the commit message, from the checkpoint's own state: training may be a step further."""
    if not by_epochs:
        return f"Training in progress, step {step_of(folder.name) or trainer.state.global_step}"
    path = folder / TRAINER_STATE_NAME
    state = TrainerState.load_from_json(path) if path.is_file() else trainer.state
    return f"Training in progress, epoch {int(state.epoch or 0)}"
