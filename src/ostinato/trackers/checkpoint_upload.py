"""The base class of tracker callbacks that can upload checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.state import TrainerControl, TrainerState
from .base import TrackerCallback


class UploadsCheckpoints(TrackerCallback):
    """Hands each new checkpoint to the tracker, where the user asks for it."""

    def uploads_checkpoints(self) -> bool:
        """Return whether the user asks for it."""
        raise NotImplementedError

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        """Upload a checkpoint, which is whole. An error is reported, and training continues."""
        raise NotImplementedError

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._sink is not None and self.uploads_checkpoints():
            with self._report_errors("did not accept the checkpoint"):
                directory = Path(args.output_dir, f"checkpoint-{state.global_step}")
                self.upload_checkpoint(directory, args, state)
