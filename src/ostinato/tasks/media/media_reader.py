"""Rows with images or sound: from folders, from tables with a column of paths, from datasets."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger

from ..label_names import is_label
from ..rows import TRAIN, VALIDATION, RowReader, Split, build_share_error, import_datasets, is_saved_dataset
from ..task_arguments import DataArguments
from .folders import find_metadata, find_split_folders, holds_tables_alone, read_folder
from .media_files import MediaFile

_MAX_LISTED = 20  # unreadable rows listed one by one


@dataclass(frozen=True)
class MediaKind:
    """What is read: its name, the endings of its files, and the names that its column usually has."""

    name: str  # also the column of rows from folders
    endings: tuple[str, ...]
    columns: tuple[str, ...]
    feature: str  # the type of such a column in `datasets`


class MediaReader(RowReader):
    """Read folders too; hold back, and limit to, random rows: files in a folder are sorted by label."""

    def __init__(self, kind: MediaKind, label_columns: Sequence[str] = (), *, skips_bad_rows: bool = False) -> None:
        super().__init__()
        self.kind, self.label_columns, self.skips_bad_rows = kind, label_columns, skips_bad_rows

    def read_file(self, file: str, name: str) -> Split:
        path = Path(file)
        if not path.is_dir() or is_saved_dataset(path):
            split = super().read_file(file, name)
        elif (metadata := find_metadata(path)) is not None:
            split = super().read_file(str(metadata), name)
        else:
            split = read_folder(path, name, self.kind.endings, self.kind.name)
        return self._keep_encoded(split)

    def read_dataset(self, arguments: DataArguments, wanted: Sequence[str]) -> dict[str, Split]:
        folders = self._find_folders(arguments, wanted)
        if folders is None:
            splits = super().read_dataset(arguments, wanted)
            return {name: self._keep_encoded(split) for name, split in splits.items()}
        return {name: self.read_file(str(folder), name) for name, folder in folders.items()}

    def list_splits(self, arguments: DataArguments, wanted: Sequence[str]) -> list[str]:
        folders = self._find_folders(arguments, wanted)
        return super().list_splits(arguments, wanted) if folders is None else list(folders)

    def _find_folders(self, arguments: DataArguments, wanted: Sequence[str]) -> dict[str, Path] | None:
        """Return the folders of a dataset by purpose; None for a dataset that is read by `datasets`."""
        path = Path(str(arguments.dataset_name))
        if not path.is_dir() or is_saved_dataset(path) or holds_tables_alone(path, self.kind.endings):
            return None
        folders = find_split_folders(path)
        named = {name: getattr(arguments, f"{name}_split_name") for name in wanted}
        for name, folder in named.items():
            if folder is not None:
                folders[name] = path / folder
                if not folders[name].is_dir():
                    raise ConfigError(f"{path} has no folder {folder!r}", "", f"correct --{name}_split_name")
        return {name: folders[name] for name in wanted if name in folders}

    def _keep_encoded(self, split: Split) -> Split:
        """Return rows with media as files or bytes: `datasets` would decode them by libraries of its own."""
        datasets, rows = import_datasets(), split.rows
        for column, feature in rows.features.items():
            if isinstance(feature, getattr(datasets, self.kind.feature)) and getattr(feature, "decode", True):
                rows = rows.cast_column(column, replace(feature, decode=False))
        return split if rows is split.rows else replace(split, rows=rows)

    def divide(self, train: Split, percent: float, *, needs_both: bool) -> dict[str, Split]:
        """Hold back the same share of each label, at least one row; the choice is always the same."""
        chosen: list[int] = []
        numbers = random.Random(0)
        train = reject_rows(train, self._find_single_rows(train), skips=self.skips_bad_rows)
        for label, places in self._group_by_label(train).items():
            count = round(len(places) * percent / 100)
            if label is not None:
                count = min(max(count, 1), len(places) - 1)
            chosen += numbers.sample(places, count)
        if not 0 < len(chosen) < len(train):
            if not needs_both and not chosen:
                return {TRAIN: train}
            raise build_share_error(percent, train, len(chosen))
        held_back = set(chosen)
        kept = [place for place in range(len(train)) if place not in held_back]
        get_logger().info(
            f"{train.source}: {len(chosen):,} of {len(train):,} rows are held back for evaluation (--train_val_split)"
        )
        return {TRAIN: train.select(kept), VALIDATION: replace(train.select(sorted(chosen)), name=VALIDATION)}

    def _group_by_label(self, split: Split) -> dict[Any, list[int]]:
        column = self._find_label_column(split)
        if column is None:
            return {None: list(range(len(split)))}
        groups: dict[Any, list[int]] = defaultdict(list)
        for place, label in enumerate(split.read_column(column)):
            groups[str(label) if is_label(label) else None].append(place)
        return groups

    def _find_label_column(self, split: Split) -> str | None:
        return next((name for name in self.label_columns if name in split.columns), None)

    def _find_single_rows(self, train: Split) -> Iterator[tuple[int, DataError]]:
        """Yield the rows whose label no other row has, with an error."""
        for label, places in self._group_by_label(train).items():
            if label is None or len(places) > 1:
                continue
            value = train.rows[places[0]]
            file = MediaFile.from_value(next((value[one] for one in self.kind.columns if one in value), None), Path())
            where = train.locate(places[0], self._find_label_column(train))
            yield (
                places[0],
                DataError(
                    what=f"{where}: the label {label!r} has one file only" + (f", {file.name}" if file else ""),
                    why="rows of every label are held back for evaluation, and nothing would be left to train on",
                    fix="add files of this label, remove it, or name validation rows of your own (--validation_dir, "
                    "--validation_file; --train_val_split 0 for none)",
                ),
            )

    def limit(self, split: Split, count: int) -> Split:
        if split.name not in (TRAIN, VALIDATION):
            return split.take(count)
        return split.select(sorted(random.Random(0).sample(range(len(split)), count)))


def find_media_column(split: Split, kind: MediaKind, requested: str | None, option: str) -> str:
    """Return the column that holds the files: the requested one, one of that type, or one of a usual name."""
    if requested is not None:
        split.require([requested], {requested: option})
        return requested
    of_type = [name for name, feature in split.rows.features.items() if type(feature).__name__ == kind.feature]
    found = [*of_type, *(name for name in kind.columns if name in split.columns)]
    if not found:
        split.require([kind.name], {kind.name: option})
    return found[0]


def check_files(split: Split, column: str) -> None:
    """Raise for the first row whose file is missing or empty; files are not opened."""
    feature = split.rows.features[column]
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        return  # the bytes are in the rows
    for row, value in enumerate(split.read_column(column)):
        file = MediaFile.from_value(value, split.directory)
        if file is None:
            raise split.build_error(row, column, "no file is named", "name a file, or remove the row")
        try:
            file.check()
        except DataError as error:
            raise DataError(f"{split.locate(row, column)}: {error.what}", error.why, error.fix) from None


def drop_unreadable_rows(split: Split, read: Callable[[Any], Any]) -> Split:
    """Return the rows that can be read, and list the others. Reads every row once."""
    problems = {}
    for row, values in enumerate(split.rows):
        try:
            read(values)
        except DataError as error:
            problems[row] = DataError(f"{split.locate(row)}: {error.what}", error.why, error.fix)
    return drop_rows(split, problems)


def reject_rows(split: Split, problems: Iterable[tuple[int, DataError]], *, skips: bool) -> Split:
    """Raise the first of some rows' problems; or skip and list these rows, and return the others."""
    if skips:
        return drop_rows(split, dict(problems))
    for _, error in problems:
        raise error
    return split


def drop_rows(split: Split, problems: Mapping[int, DataError]) -> Split:
    """Return the rows without a problem, and list the others."""
    lines = [f"skipped {error.what} ({error.why})" for error in problems.values()]
    for line in lines[:_MAX_LISTED]:
        get_logger().info(line)
    if len(lines) > _MAX_LISTED:
        get_logger().info(f"skipped {len(lines) - _MAX_LISTED:,} more rows of {split.source}")
    if lines and len(lines) == len(split):
        raise DataError(f"{split.source}: no row can be used", lines[0], "check the rows and their files")
    return split if not lines else split.select([row for row in range(len(split)) if row not in problems])
