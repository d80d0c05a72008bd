"""Flags that all recipes for images and sound share."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato import ConfigError

from ..rows import TEST, TRAIN, VALIDATION
from ..task_arguments import DataArguments, flag


@dataclass
class MediaArguments(DataArguments):
    """Folders of files, and how they are read."""

    train_dir: str | None = flag(None, "A folder to train on: files, or a folder of files for each label.")
    validation_dir: str | None = flag(None, "A folder to evaluate on.")
    test_dir: str | None = flag(None, "A folder to predict.")
    train_val_split: float | None = flag(
        0.15, "Without validation rows, evaluate on this share of the training rows: random ones, of every label."
    )
    max_train_samples: int | None = flag(None, "Train on at most this many rows: random ones, always the same.")
    max_eval_samples: int | None = flag(None, "Evaluate on at most this many rows: random ones, always the same.")
    decoded_cache_dir: str | None = flag(
        None, "Keep decoded files in this directory, so that each is decoded once: more disk, less time."
    )
    preprocessing_num_workers: int | None = flag(
        None, "Accepted without effect: rows are read when they are needed, by --dataloader_num_workers processes."
    )
    overwrite_cache: bool = flag(False, "Accepted without effect: no encoded rows are stored.")

    def __post_init__(self) -> None:
        for name in (TRAIN, VALIDATION, TEST):
            folder, file = getattr(self, f"{name}_dir"), getattr(self, f"{name}_file")
            if folder is not None and file is not None and folder != file:
                raise ConfigError(
                    what=f"--{name}_dir {folder} and --{name}_file {file}",
                    why="rows are read from a folder or from a file",
                    fix="remove one of them",
                )
            if folder is not None:
                setattr(self, f"{name}_file", folder)
        share = self.train_val_split
        if share is not None and not 0 <= share < 1:
            raise ConfigError(
                what=f"--train_val_split {share:g}",
                why="it is a share of the rows, at least 0 and less than 1",
                fix=f"--train_val_split {share / 100:g}" if 1 <= share < 100 else "--train_val_split 0.15",
            )
        if self.validation_split_percentage is None and share:
            self.validation_split_percentage = 100 * share
