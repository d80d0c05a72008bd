"""A repository on the Hugging Face hub, through huggingface_hub."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, NotSupportedError
from .uploads import THREAD

_MAX_LENGTH = 300  # characters of a reason


class NoHubLibraryError(NotSupportedError, ImportError):
    """huggingface_hub is not installed."""

    def __str__(self) -> str:  # ImportError would print its own form
        return Exception.__str__(self)


def import_hub_library(needed_by: str) -> Any:
    """Return huggingface_hub, or raise an error that says what needs it."""
    try:
        for part in ("utils", "constants"):  # attributes of the package once they are imported
            import_module(f"huggingface_hub.{part}")
        return import_module("huggingface_hub")
    except ImportError as error:
        raise NoHubLibraryError(
            what=f"{needed_by} needs huggingface_hub",
            why="it is not installed",
            fix="pip install huggingface_hub",
        ) from error


@dataclass
class Repository:
    """A model's repository on the hub, which may not exist yet.

    >>> repository = Repository("owner/model", token=None)
    >>> repository.upload(Path("out"), message="End of training")  # doctest: +SKIP
    """

    name: str  # `owner/name`, or the name alone: of the owner of the token
    token: str | None = field(default=None, repr=False)
    private: bool | None = None
    id: str | None = None  # `owner/name`, once the hub has returned it

    def check_name(self) -> None:
        """Raise unless the name is valid for the hub."""
        library = import_hub_library("push_to_hub")
        try:
            library.utils.validate_repo_id(self.name)
        except ValueError as error:
            raise ConfigError(
                what=f"{self.name!r} is not a valid repository name",
                why=str(error).partition(":")[0],
                fix="set hub_model_id='owner/name'",
            ) from error

    def create_if_missing(self) -> str:
        """Return the repository's full name; create it if it does not exist."""
        if self.id is None:
            self.id = self._build_api().create_repo(self.name, private=self.private, exist_ok=True).repo_id
        assert self.id is not None
        return self.id

    def upload(self, folder: Path, *, message: str, path_in_repo: str = "", revision: str | None = None) -> Any:
        """Upload a folder as one commit; create the branch from `main` if it does not exist."""
        api, missing = self._build_api(), import_hub_library("push_to_hub").utils.RevisionNotFoundError

        def send() -> Any:
            return api.upload_folder(
                repo_id=self.create_if_missing(),
                folder_path=str(folder),
                path_in_repo=path_in_repo,
                commit_message=message,
                revision=revision,
            )

        try:
            return send()
        except missing:
            if revision is None:
                raise
            api.create_branch(self.create_if_missing(), branch=revision, exist_ok=True)
            return send()

    def format_reason(self, error: BaseException) -> str:
        """Return why the hub refused something, in one line and without the token."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        while status is None and error.__cause__ is not None:  # the cause of "could not upload this file"
            error = error.__cause__
            status = getattr(getattr(error, "response", None), "status_code", None)
        message = getattr(error, "server_message", None) or " ".join(str(error).split()) or type(error).__name__
        if status in (401, 403):
            message = f"{message} (log in with `hf auth login`, or set hub_token)"
        text = f"the hub answered {status}: {message}" if status is not None else f"{type(error).__name__}: {message}"
        if self.token:
            text = text.replace(self.token, "<HUB_TOKEN>")
        return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"

    def format_command(
        self,
        folder: Path,
        *,
        path_in_repo: str = "",
        revision: str | None = None,
        message: str,
        exclude: Sequence[str] = (),
    ) -> str:
        """Return the command that creates the repository and uploads a folder."""
        words = ["hf", "upload", self.id or self.name, str(folder), path_in_repo or "."]
        for pattern in exclude:
            words += ["--exclude", pattern]
        if revision is not None:
            words += ["--revision", revision]
        if self.private and self.id is None:
            words.append("--private")
        return shlex.join([*words, "--commit-message", message])

    def _build_api(self) -> Any:
        library = import_hub_library("push_to_hub")
        for handler in logging.getLogger("huggingface_hub").handlers:
            handler.addFilter(_is_not_about_uploads)  # without effect if it was added before
        return library.HfApi(token=self.token, library_name="ostinato")


class ClientProgressBars:
    """The client's progress bars, disabled during uploads because they would garble that of a run.

    They have one switch for the whole process, which saving a model also changes for a moment. Both happen in the
    training thread, so that they do not interfere.
    """

    def __init__(self) -> None:
        self._are_off = False

    def disable(self) -> None:
        library = import_hub_library("push_to_hub")
        decides_itself = library.constants.HF_HUB_DISABLE_PROGRESS_BARS is not None  # the user, by the environment
        if not self._are_off and not decides_itself and not library.utils.are_progress_bars_disabled():
            library.utils.disable_progress_bars()
            self._are_off = True

    def restore(self) -> None:
        if self._are_off:
            import_hub_library("push_to_hub").utils.enable_progress_bars()
            self._are_off = False


def _is_not_about_uploads(record: logging.LogRecord) -> bool:
    """Return whether to keep a record: the client logs every attempt, and we report how an upload ended."""
    return record.threadName != THREAD or record.levelno >= logging.ERROR
