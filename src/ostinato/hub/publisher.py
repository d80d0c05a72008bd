"""Upload a model and its checkpoints to the hub, and report what could not be uploaded.

Nothing here stops a run. Files are staged in the training thread (`hub.staging`) and uploaded in another. Results are
collected at the next save, or at the end. A failed upload gives one warning and is tried again with the next save;
what is still missing at the end is reported with the command that uploads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..arguments.settings import HubSettings
from ..checkpoint.file_names import (
    BEST_MODEL_NAME,
    LOCK_NAME,
    LOOP_NAME,
    MANIFEST_NAME,
    OPTIMIZER_NAME,
    PREFIX_CHECKPOINT_DIR,
    RUN_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
)
from ..checkpoint.identity import list_moved_directories, step_of
from ..core.choices import HubStrategy
from ..core.notices import warn
from ..core.run_files import JOURNAL_NAME, REPORT_NAME, VERIFY_DIRECTORY
from ..core.state import TrainerState
from . import staging
from .model_card import CARD_NAME
from .repository import ClientProgressBars, Repository
from .uploads import PushInProgress, Upload, Uploads, finish_at_exit

CREATION_TIMEOUT = 10.0  # seconds that a constructor waits for the repository

# What a checkpoint has beside the model. (The card is that of the output directory.)
_TRAINING_FILES = (
    *(f"{Path(name).stem}.*" for name in (OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, LOOP_NAME)),
    "rng-*",
    "rng_state*",
    TRAINER_STATE_NAME,
    RUN_NAME,
    MANIFEST_NAME,
    CARD_NAME,
)
# What an output directory has beside the model, and `_private` things, as in transformers.
_PRIVATE_FILES = (
    "_*",
    f"{PREFIX_CHECKPOINT_DIR}-*",
    BEST_MODEL_NAME,
    LOCK_NAME,
    f"{staging.PREFIX}*",
    f".{PREFIX_CHECKPOINT_DIR}-*",
    f".{BEST_MODEL_NAME}.*",
    VERIFY_DIRECTORY,
    JOURNAL_NAME,  # these tell of this machine: paths, commands
    REPORT_NAME,
)


Source = tuple[Path, tuple[str, ...], bool]  # a folder, what is left out of it, whether it is never written to


@dataclass(frozen=True)
class Commit:
    """One commit: its content, and where it goes."""

    sources: tuple[Source, ...]  # the later lie over the earlier
    message: str
    place: str  # in the repository; nothing is its top
    revision: str | None
    checkpoint: Path | None = None  # where it is from; None: it is newer than any


@dataclass(frozen=True)
class Push:
    """A commit that is being uploaded."""

    commit: Commit
    upload: Upload


class Publisher:
    """The repository of one trainer, uploads in progress, and checkpoints still to upload."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository = repository
        self.home = home
        self.uploads = Uploads()
        self.in_progress: list[Push] = []
        self.pending: dict[str, Path] = {}  # by place in the repository: the checkpoint that should be there
        self.last_error: BaseException | None = None  # of the upload that ended last
        self._bars = ClientProgressBars()
        self._staged: list[staging.Staged] = []
        self._has_warned = self._has_removed_leftovers = False

    def create_repository(self) -> None:
        """Create the repository; wait a short time for its full name."""
        upload = self.uploads.start(self.repository.make, timeout=CREATION_TIMEOUT)
        self.uploads.wait(upload)
        if upload.error is not None:
            by_hand = self.repository.command(self.home, message="End of training")
            self._warn_once(upload.error, more=f"; by hand, after training: {by_hand}")

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

    def release(self, directory: Path) -> None:
        """Unlink staged files from `directory` before it is written to, so that uploads stay as they are."""
        for staged in self._staged:
            staged.release(directory)

    def command(self, commit: Commit) -> str:
        """Return the command that uploads a commit."""
        source, left_out, _ = commit.sources[-1]
        there = [
            f"{pattern}/*" if any(path.is_dir() for path in source.glob(pattern)) else pattern
            for pattern in left_out
            if any(source.glob(pattern))
        ]
        return self.repository.command(
            source, path_in_repo=commit.place, revision=commit.revision, message=commit.message, exclude=there
        )

    def _stage(self, sources: Sequence[Source]) -> staging.Staged | None:
        self._staged = [one for one in self._staged if one.remove.alive]
        if not self._has_removed_leftovers:
            self._has_removed_leftovers = True
            staging.remove_leftovers(self.home, keep={one.folder for one in self._staged})
        staged = None
        try:
            staged = staging.Staged(self.home)
            for source, left_out, is_sealed in sources:
                staged.add_folder(source, link_all=is_sealed, exclude=partial(staging.matches, patterns=left_out))
        except OSError as error:
            warn(f"nothing is uploaded: what should be could not be put aside in {self.home}: {error}")
            if staged is not None:
                staged.remove()
            return None
        self._staged.append(staged)
        return staged

    def _warn_once(self, error: BaseException, more: str = "") -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"could not upload to {self.repository.id or self.repository.name}: {self.repository.reason(error)}; "
                f"training goes on, and the next save tries again (said once){more}"
            )


class HubHost(Protocol):
    """A trainer whose model is uploaded."""

    args: Any
    state: TrainerState
    hub_model_id: str | None
    push_in_progress: PushInProgress | None
    _publishing: Publisher | None

    @property
    def _home(self) -> Path: ...

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
    trainer._publishing = publishing = Publisher(repository, trainer._home)
    publishing.create_repository()
    trainer.hub_model_id = repository.id or repository.name
    trainer.push_in_progress = None


def push_from_checkpoint(trainer: HubHost, folder: Path) -> None:
    """Upload a saved checkpoint, unless another upload is in progress: then the next save, or the end, does."""
    settings = HubSettings.of(trainer.args)
    if not trainer.is_world_process_zero() or settings.strategy == HubStrategy.END:
        return
    publishing = _publishing(trainer)
    publishing.uploads.abandon_if_late()
    publishing.collect_finished()
    publishing.pending[""] = folder
    if settings.strategy == HubStrategy.CHECKPOINT:
        publishing.pending["last-checkpoint"] = folder
    elif settings.strategy == HubStrategy.ALL_CHECKPOINTS:
        publishing.pending[folder.name] = folder
    if settings.always or not publishing.in_progress:
        _push_pending(trainer, publishing, settings)


def _push_pending(trainer: HubHost, publishing: Publisher, settings: HubSettings) -> None:
    in_progress = {(push.commit.place, push.commit.checkpoint) for push in publishing.in_progress}
    commits = [
        _build_commit(trainer, publishing, settings, place, folder)
        for place, folder in sorted(
            publishing.pending.items(), key=lambda pending: pending[0] != ""
        )  # the model first
        if folder.is_dir() and (place, folder) not in in_progress
    ]
    if commits:
        _expose_progress(trainer, publishing, [publishing.push(commit) for commit in commits])


def _build_commit(trainer: HubHost, publishing: Publisher, settings: HubSettings, place: str, folder: Path) -> Commit:
    """Return the commit of a checkpoint, or of its model and the run's other files for the repository's root."""
    message = _message(trainer, folder, by_epochs=settings.by_epochs)
    if place:
        return Commit(((folder, (), True),), f"{message}, checkpoint", place, settings.revision, folder)
    sources = (_list_output_files(publishing), (folder, _TRAINING_FILES, True))
    return Commit(sources, message, place, settings.revision, folder)


def _list_output_files(publishing: Publisher) -> Source:
    left_out = (*_PRIVATE_FILES, *(path.name for path in list_moved_directories(publishing.home)))
    return publishing.home, left_out, False


def finish_current_push(trainer: HubHost) -> None:
    """Wait for uploads, upload what was skipped meanwhile, and warn of what is missing and how to add it."""
    publishing, settings = trainer._publishing, HubSettings.of(trainer.args)
    if publishing is None:
        return
    publishing.wait()
    if publishing.pending and publishing.last_error is None:
        _push_pending(trainer, publishing, settings)
        publishing.wait()
    if publishing.pending and publishing.last_error is not None:
        pending, publishing.pending = publishing.pending, {}
        commits = [_build_commit(trainer, publishing, settings, *one) for one in pending.items() if one[1].is_dir()]
        gone = [place for place, folder in pending.items() if not folder.is_dir()]
        _warn_of_missing(publishing, "training is not harmed, but not everything is on the hub", commits, gone)


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
    publishing = _publishing(trainer)
    if token is not None:
        publishing.repository.token = token
    card.setdefault("model_name", (publishing.repository.id or settings.name).rpartition("/")[2])
    trainer.create_model_card(**card)
    publishing.collect_finished()
    commit = Commit(
        (_list_output_files(publishing),), message, "", revision if revision is not None else settings.revision
    )
    push = publishing.push(commit, is_blocking=blocks)
    if push is None:
        return None
    if not blocks:
        _expose_progress(trainer, publishing, [push])
        finish_at_exit(publishing.uploads, push.upload)
        return push.upload.future
    publishing.uploads.wait(push.upload)
    publishing.collect_finished(warns=False)
    if push.upload.error is None:
        return push.upload.future.result()
    _warn_of_missing(publishing, f"{message!r} is not on the hub, but safe in {publishing.home}", [commit])
    return None


def _publishing(trainer: HubHost) -> Publisher:
    if trainer._publishing is None:
        trainer.init_hf_repo()
    assert trainer._publishing is not None
    trainer._publishing.home = trainer._home  # arguments may have been changed since
    return trainer._publishing


def _expose_progress(trainer: HubHost, publishing: Publisher, pushes: Sequence[Push | None]) -> None:
    sent = [push.upload for push in pushes if push is not None]
    trainer.push_in_progress = PushInProgress(
        [upload.future for upload in sent], wait=partial(publishing.uploads.wait, *sent)
    )


def _warn_of_missing(publishing: Publisher, what: str, commits: Sequence[Commit], gone: Sequence[str] = ()) -> None:
    """Warn of what is missing, why, and with which command to add it."""
    lines = [what]
    if publishing.last_error is not None:
        lines = [f"{what}: {publishing.repository.reason(publishing.last_error)}"]
    if gone:
        lines.append(f"deleted here before the hub took it: {', '.join(gone)}")
    if commits:
        lines += ["to finish, logged in (`hf auth login`) or with HF_TOKEN set:", *map(publishing.command, commits)]
    warn("\n  ".join(lines))


def _message(trainer: HubHost, folder: Path, *, by_epochs: bool) -> str:
    """Return the commit message, from the checkpoint's own state: training may be a step further."""
    if not by_epochs:
        return f"Training in progress, step {step_of(folder.name) or trainer.state.global_step}"
    path = folder / TRAINER_STATE_NAME
    state = TrainerState.load_from_json(path) if path.is_file() else trainer.state
    return f"Training in progress, epoch {int(state.epoch or 0)}"
