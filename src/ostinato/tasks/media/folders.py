"""Rows from folders of files: `train/<label>/x.jpg`, files without labels, or files listed by a metadata file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ostinato import DataError
from ostinato.logging import get_logger

from ..rows import READERS, TEST, TRAIN, VALIDATION, Split, format_names, import_datasets

METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # as in the folders that `datasets` reads
SPLIT_FOLDERS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "val", "dev"),
    TEST: ("test", "testing", "eval"),
}


def find_metadata(directory: Path) -> Path | None:
    """Return the file that lists the files of a folder with further columns, if there is one."""
    return next((directory / name for name in METADATA_NAMES if (directory / name).is_file()), None)


def holds_tables_alone(directory: Path, endings: Sequence[str]) -> bool:
    """Return whether a folder has tables, such as the parquet files of a downloaded dataset, and no media files."""
    found = {path.suffix.lower() for path in directory.rglob("*")}
    return not found & set(endings) and bool(found & (READERS.keys() - {".txt"}))


def find_split_folders(directory: Path) -> dict[str, Path]:
    """Return the folders of a dataset by purpose; one without folders of that name is for training."""
    known = {one.name.lower(): one for one in directory.iterdir() if one.is_dir()}
    found = {
        purpose: next((known[name] for name in names if name in known), None)
        for purpose, names in SPLIT_FOLDERS.items()
    }
    splits = {purpose: folder for purpose, folder in found.items() if folder is not None}
    return splits if TRAIN in splits or splits.keys() == {TEST} else {TRAIN: directory}


def read_folder(directory: Path, name: str, endings: Sequence[str], column: str) -> Split:
    """Return a row for each file of a folder, in the order of their names: its path, and its folder as `label`."""
    labels = sorted(one for one in directory.iterdir() if one.is_dir() and not one.name.startswith("."))
    _check_label_names(directory, [label.name for label in labels])
    direct = _list_files(directory, "*", endings)
    by_label = {label.name: _list_files(label, "**/*", endings) for label in labels}
    if direct and any(by_label.values()):
        label = next(label for label, files in by_label.items() if files)
        raise DataError(
            what=f"{directory} holds files and folders of files",
            why=f"{direct[0].name} lies beside the folder {label}, so it is not clear what its label is",
            fix="move the files into the folder of their label",
        )
    if not direct and not any(by_label.values()):
        raise _build_no_files_error(directory, endings)
    if empty := [label for label, files in by_label.items() if not files] if not direct else []:
        raise DataError(
            what=f"{directory / empty[0]} holds no {column} file",
            why=f"every folder is a label; the endings looked for are {', '.join(endings)}",
            fix="remove the folder, or add its files",
        )
    _report_other_files(directory, endings)
    files = [(str(file.relative_to(directory)), "") for file in direct] or [
        (str(file.relative_to(directory)), label) for label, files in by_label.items() for file in files
    ]
    columns = {column: [path for path, _ in files]}
    if not direct:
        columns["label"] = [label for _, label in files]
    return Split(name, import_datasets().Dataset.from_dict(columns), str(directory), directory)


def _check_label_names(directory: Path, labels: Sequence[str]) -> None:
    """Raise if all folders are named as splits are: a file's label would be the name of its split."""
    if len(labels) > 1 and {label.lower() for label in labels} <= set(chain.from_iterable(SPLIT_FOLDERS.values())):
        raise DataError(
            what=f"{directory} holds the folders {format_names(labels)}",
            why="these are names of splits, not of labels",
            fix=f"read them with --dataset_name {directory}, or name the folder of one split",
        )


def _list_files(directory: Path, pattern: str, endings: Sequence[str]) -> list[Path]:
    return [path for path in _list_visible(directory, pattern) if path.suffix.lower() in endings]


def _list_visible(directory: Path, pattern: str) -> list[Path]:
    """Return the files that match, but for hidden ones and those of hidden folders."""
    return sorted(
        path
        for path in directory.glob(pattern)
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    )


def _report_other_files(directory: Path, endings: Sequence[str]) -> None:
    others = [path.name for path in _list_visible(directory, "**/*") if path.suffix.lower() not in endings]
    if others:
        count = f"{len(others):,} {'file' if len(others) == 1 else 'files'}"
        get_logger().info(f"{directory}: left out {count} of other kinds: {format_names(others, 3)}")


def _build_no_files_error(directory: Path, endings: Sequence[str]) -> DataError:
    others = sorted(one.name for one in directory.iterdir())
    return DataError(
        what=f"{directory} holds no files to read",
        why=f"the endings looked for are {', '.join(endings)}; it has {format_names(others) if others else 'nothing'}",
        fix="name a folder of such files, or of folders by label",
    )
