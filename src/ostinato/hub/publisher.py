"""A model and its checkpoints on the hub: when they are uploaded, what is said of it, and what is left to be done.

Nothing here stops a run. What is uploaded is put aside first (`hub.staging`), in the thread that trains, and
sent in another. How that ended is looked at when the next save comes, or at the end: what the hub did not take is told
once, tried again with the next save, and at last told with the command that finishes it.
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
from ..checkpoint.identity import homes_of, step_of
from ..core.choices import HubStrategy
from ..core.notices import warn
from ..core.run_files import JOURNAL_NAME, REPORT_NAME, VERIFY_DIRECTORY
from ..core.state import TrainerState
from . import staging
from .model_card import CARD_NAME
from .repository import ClientBars, Repository
from .uploads import PushInProgress, Upload, Uploads, finish_at_exit

MAKING = 10.0  # seconds that a constructor waits for the repository

# What a checkpoint has beside the model. (The card is that of the output directory.)
_OF_TRAINING = (
    *(f"{Path(name).stem}.*" for name in (OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, LOOP_NAME)),
    "rng-*",
    "rng_state*",
    TRAINER_STATE_NAME,
    RUN_NAME,
    MANIFEST_NAME,
    CARD_NAME,
)
# What an output directory has beside the model, and `_private` things, as in transformers.
_NOT_PUBLISHED = (
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


Source = tuple[Path, tuple[str, ...], bool]  # a folder, what is left out of it, whether nobody writes there


@dataclass(frozen=True)
class Parcel:
    """One commit: what is in it, and where it goes."""

    sources: tuple[Source, ...]  # the later lie over the earlier
    message: str
    place: str  # in the repository; nothing is its top
    revision: str | None
    checkpoint: Path | None = None  # where it is from; None: it is newer than any


@dataclass(frozen=True)
class Push:
    """A parcel on its way."""

    parcel: Parcel
    upload: Upload


class Publishing:
    """The repository of one trainer, what is on its way there, and what is not there yet."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository = repository
        self.home = home
        self.uploads = Uploads()
        self.on_the_way: list[Push] = []
        self.owed: dict[str, Path] = {}  # by place in the repository: the checkpoint that should be there
        self.last_error: BaseException | None = None  # of the upload that ended last
        self._bars = ClientBars()
        self._staged: list[staging.Staged] = []
        self._has_told = self._has_swept = False

    def make_repository(self) -> None:
        """Have the repository made; wait a moment for its full name."""
        upload = self.uploads.start(self.repository.make, patience=MAKING)
        self.uploads.wait(upload)
        if upload.error is not None:
            by_hand = self.repository.command(self.home, message="End of training")
            self._tell(upload.error, more=f"; by hand, after training: {by_hand}")

    def push(self, parcel: Parcel, *, is_watched: bool = False) -> Push | None:
        """Put a parcel aside and send it; None if there is no room to do so."""
        staged = self._stage(parcel.sources)
        if staged is None:
            return None
        send = partial(
            self.repository.upload,
            staged.folder,
            message=parcel.message,
            path_in_repo=parcel.place,
            revision=parcel.revision,
        )
        (self._bars.put_back if is_watched else self._bars.put_off)()
        push = Push(parcel, self.uploads.start(send, size=staged.size, afterwards=lambda: staged.remove()))
        self.on_the_way.append(push)
        return push

    def settle(self, *, tells: bool = True) -> None:
        """Look at what has ended: forget what arrived, tell what did not."""
        for push in [push for push in self.on_the_way if push.upload.is_done]:
            self.on_the_way.remove(push)
            self.last_error = push.upload.error
            if self.last_error is not None:
                if tells:
                    self._tell(self.last_error)
                continue
            self._has_told = False
            if push.parcel.checkpoint in (None, self.owed.get(push.parcel.place)):
                self.owed.pop(push.parcel.place, None)
        if not self.on_the_way:
            self._bars.put_back()

    def wait(self) -> None:
        """Return once nothing is on its way, or what is has taken too long."""
        self.uploads.wait(*(push.upload for push in self.on_the_way))
        self.settle()

    def let_go(self, directory: Path) -> None:
        """Somebody is going to write into `directory`: what is being uploaded stays as it is."""
        for staged in self._staged:
            staged.let_go(directory)

    def command(self, parcel: Parcel) -> str:
        """What to type to send a parcel by hand."""
        source, left_out, _ = parcel.sources[-1]
        there = [
            f"{pattern}/*" if any(path.is_dir() for path in source.glob(pattern)) else pattern
            for pattern in left_out
            if any(source.glob(pattern))
        ]
        return self.repository.command(
            source, path_in_repo=parcel.place, revision=parcel.revision, message=parcel.message, exclude=there
        )

    def _stage(self, sources: Sequence[Source]) -> staging.Staged | None:
        self._staged = [one for one in self._staged if one.remove.alive]
        if not self._has_swept:
            self._has_swept = True
            staging.sweep(self.home, keep={one.folder for one in self._staged})
        staged = None
        try:
            staged = staging.Staged(self.home)
            for source, left_out, is_sealed in sources:
                staged.add_folder(source, link_all=is_sealed, leave_out=partial(staging.matches, patterns=left_out))
        except OSError as error:
            warn(f"nothing is uploaded: what should be could not be put aside in {self.home}: {error}")
            if staged is not None:
                staged.remove()
            return None
        self._staged.append(staged)
        return staged

    def _tell(self, error: BaseException, more: str = "") -> None:
        if not self._has_told:
            self._has_told = True
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
    _publishing: Publishing | None

    @property
    def _home(self) -> Path: ...

    def init_hf_repo(self, token: str | None = None) -> None: ...

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    def create_model_card(self, *args: Any, **kwargs: Any) -> None: ...

    def is_world_process_zero(self) -> bool: ...


# ---- what the Trainer's methods do ---------------------------------------------------------------------------------


def init_repository(trainer: HubHost, token: str | None) -> None:
    """Make the repository, or find it, and remember its name; a hub that does not answer is told."""
    if not trainer.is_world_process_zero():
        return
    settings = HubSettings.of(trainer.args)
    repository = Repository(settings.name, token if token is not None else settings.token, settings.private)
    repository.check_name()
    trainer._publishing = publishing = Publishing(repository, trainer._home)
    publishing.make_repository()
    trainer.hub_model_id = repository.id or repository.name
    trainer.push_in_progress = None


def push_from_checkpoint(trainer: HubHost, folder: Path) -> None:
    """Upload what a save has left, unless another upload is on its way: then the next save, or the end, does it."""
    settings = HubSettings.of(trainer.args)
    if not trainer.is_world_process_zero() or settings.strategy == HubStrategy.END:
        return
    publishing = _publishing(trainer)
    publishing.uploads.give_up_if_late()
    publishing.settle()
    publishing.owed[""] = folder
    if settings.strategy == HubStrategy.CHECKPOINT:
        publishing.owed["last-checkpoint"] = folder
    elif settings.strategy == HubStrategy.ALL_CHECKPOINTS:
        publishing.owed[folder.name] = folder
    if settings.always or not publishing.on_the_way:
        _push_owed(trainer, publishing, settings)


def _push_owed(trainer: HubHost, publishing: Publishing, settings: HubSettings) -> None:
    on_the_way = {(push.parcel.place, push.parcel.checkpoint) for push in publishing.on_the_way}
    parcels = [
        _parcel(trainer, publishing, settings, place, folder)
        for place, folder in sorted(publishing.owed.items(), key=lambda owed: owed[0] != "")  # the model first
        if folder.is_dir() and (place, folder) not in on_the_way
    ]
    if parcels:
        _show(trainer, publishing, [publishing.push(parcel) for parcel in parcels])


def _parcel(trainer: HubHost, publishing: Publishing, settings: HubSettings, place: str, folder: Path) -> Parcel:
    """A checkpoint as it is; or, for the top of the repository, its model among what else the run has there."""
    message = _message(trainer, folder, by_epochs=settings.by_epochs)
    if place:
        return Parcel(((folder, (), True),), f"{message}, checkpoint", place, settings.revision, folder)
    sources = (_home_of(publishing), (folder, _OF_TRAINING, True))
    return Parcel(sources, message, place, settings.revision, folder)


def _home_of(publishing: Publishing) -> Source:
    left_out = (*_NOT_PUBLISHED, *(path.name for path in homes_of(publishing.home)))
    return publishing.home, left_out, False


def finish_current_push(trainer: HubHost) -> None:
    """Wait for what is on its way, send what was passed over meanwhile, and say what is missing and how to add it."""
    publishing, settings = trainer._publishing, HubSettings.of(trainer.args)
    if publishing is None:
        return
    publishing.wait()
    if publishing.owed and publishing.last_error is None:
        _push_owed(trainer, publishing, settings)
        publishing.wait()
    if publishing.owed and publishing.last_error is not None:
        owed, publishing.owed = publishing.owed, {}
        parcels = [_parcel(trainer, publishing, settings, *one) for one in owed.items() if one[1].is_dir()]
        gone = [place for place, folder in owed.items() if not folder.is_dir()]
        _tell_missing(publishing, "training is not harmed, but not everything is on the hub", parcels, gone)


def push_to_hub(
    trainer: HubHost, message: str, token: str | None, revision: str | None, card: dict[str, Any], *, blocks: bool
) -> Any:
    """Save the model, write its card, upload both; what the commit is, or None if the hub did not take it."""
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
    publishing.settle()
    parcel = Parcel((_home_of(publishing),), message, "", revision if revision is not None else settings.revision)
    push = publishing.push(parcel, is_watched=blocks)
    if push is None:
        return None
    if not blocks:
        _show(trainer, publishing, [push])
        finish_at_exit(publishing.uploads, push.upload)
        return push.upload.future
    publishing.uploads.wait(push.upload)
    publishing.settle(tells=False)
    if push.upload.error is None:
        return push.upload.future.result()
    _tell_missing(publishing, f"{message!r} is not on the hub, but safe in {publishing.home}", [parcel])
    return None


def _publishing(trainer: HubHost) -> Publishing:
    if trainer._publishing is None:
        trainer.init_hf_repo()
    assert trainer._publishing is not None
    trainer._publishing.home = trainer._home  # arguments may have been changed since
    return trainer._publishing


def _show(trainer: HubHost, publishing: Publishing, pushes: Sequence[Push | None]) -> None:
    sent = [push.upload for push in pushes if push is not None]
    trainer.push_in_progress = PushInProgress(
        [upload.future for upload in sent], wait=partial(publishing.uploads.wait, *sent)
    )


def _tell_missing(publishing: Publishing, what: str, parcels: Sequence[Parcel], gone: Sequence[str] = ()) -> None:
    """What is missing, why, and what to type."""
    lines = [what]
    if publishing.last_error is not None:
        lines = [f"{what}: {publishing.repository.reason(publishing.last_error)}"]
    if gone:
        lines.append(f"deleted here before the hub took it: {', '.join(gone)}")
    if parcels:
        lines += ["to finish, logged in (`hf auth login`) or with HF_TOKEN set:", *map(publishing.command, parcels)]
    warn("\n  ".join(lines))


def _message(trainer: HubHost, folder: Path, *, by_epochs: bool) -> str:
    """By the checkpoint's own state: training may be a step further by now."""
    if not by_epochs:
        return f"Training in progress, step {step_of(folder.name) or trainer.state.global_step}"
    path = folder / TRAINER_STATE_NAME
    state = TrainerState.load_from_json(path) if path.is_file() else trainer.state
    return f"Training in progress, epoch {int(state.epoch or 0)}"
