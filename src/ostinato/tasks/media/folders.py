"""Rows from folders of files: `train/<label>/x.jpg`, files without labels, or files listed by a metadata file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ostinato import DataError
from ostinato.logging import get_logger

from ..rows import TEST, TRAIN, VALIDATION, Split, format_names, import_datasets

METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # as in the folders that `datasets` reads
SPLIT_FOLDERS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "val", "dev"),
    TEST: ("test", "testing", "eval"),
}


def find_metadata(directory: Path) -> Path | None:
    """Return the file that lists the files of a folder with further columns, if there is one."""
    return next((directory / name for name in METADATA_NAMES if (directory / name).is_file()), None)


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
    direct = _list_files(directory.glob("*"), endings)
    by_label = {label.name: _list_files(label.rglob("*"), endings) for label in labels}
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


def _list_files(paths: Iterable[Path], endings: Sequence[str]) -> list[Path]:
    return sorted(path for path in paths if path.suffix.lower() in endings and _is_visible(path) and path.is_file())


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".")


def _report_other_files(directory: Path, endings: Sequence[str]) -> None:
    others = sorted(
        path.name
        for path in directory.rglob("*")
        if path.suffix.lower() not in endings and _is_visible(path) and path.is_file()
    )
    if others:
        get_logger().info(f"{directory}: left out {len(others)} files of other kinds: {format_names(others, 3)}")


def _build_no_files_error(directory: Path, endings: Sequence[str]) -> DataError:
    others = sorted(one.name for one in directory.iterdir())
    return DataError(
        what=f"{directory} holds no files to read",
        why=f"the endings looked for are {', '.join(endings)}; it has {format_names(others) if others else 'nothing'}",
        fix="name a folder of such files, or of folders by label",
    )
