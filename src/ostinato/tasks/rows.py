"""Rows from local files and from `datasets`, and errors that name the file, the column and the row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ostinato import ConfigError, DataError

from .file_errors import find_encoding_error, find_file_error, open_text
from .task_arguments import DataArguments

# The reader that `datasets` has for a file, by the file's ending; ".gz" may follow.
READERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".txt": "text"}
TRAIN, VALIDATION, TEST = "train", "validation", "test"
_FLAGS = {TRAIN: "--do_train", VALIDATION: "--do_eval", TEST: "--do_predict"}
_MAX_SHOWN = 5  # values of a row in a message
_SAVED_DATASET, _SAVED_SPLITS = "state.json", "dataset_dict.json"  # files that save_to_disk writes beside the rows


def is_saved_dataset(directory: Path) -> bool:
    """Return whether a directory was written by `save_to_disk`."""
    return any((directory / name).is_file() for name in (_SAVED_DATASET, _SAVED_SPLITS))


@dataclass(frozen=True)
class Split:
    """The rows of one purpose, and where they are from."""

    name: str  # train, validation or test; a dataset may have further ones, such as validation_mismatched
    rows: Any  # a datasets.Dataset
    source: str  # the name in messages: the file, or the dataset and its split
    directory: Path = Path()  # where relative paths in the rows start
    numbers: Sequence[int] | None = None  # the rows of the source that these are, if not the first ones

    @property
    def columns(self) -> list[str]:
        return list(self.rows.column_names)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return f"{self.source} ({len(self):,} {'row' if len(self) == 1 else 'rows'})"

    def read_column(self, name: str) -> Sequence[Any]:
        """Return all values of a column; raise if there is no such column."""
        self.require([name])
        return self.rows[name]

    def require(self, names: Iterable[str], flags: Mapping[str, str] | None = None) -> None:
        """Raise if one of these columns is missing. `flags` has the option that names a column, for the advice."""
        for name in names:
            if name in self.columns:
                continue
            near = get_close_matches(name, self.columns, n=1)
            option = (flags or {}).get(name)
            raise DataError(
                what=f"{self.source} has no column {name!r}",
                why=f"its columns are {', '.join(map(repr, self.columns)) or 'none'}",
                fix=(f"name the column with {option}" if option else "rename a column")
                + (f"; did you mean {near[0]!r}?" if near else ""),
            )

    def build_error(self, row: int, column: str, what: str, fix: str) -> DataError:
        """Return the error about one value; rows are counted from 1, as the lines of a file are."""
        value = self.rows[row].get(column)
        shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
        return DataError(f"{self.locate(row, column)}: {what}", f"the value is {shown}", fix)

    def get_number(self, row: int) -> int:
        """Return the number of a row in the source, from 0."""
        return row if self.numbers is None else int(self.numbers[row])

    def locate(self, row: int, column: str | None = None) -> str:
        """Return where a row or a value of it is, for messages."""
        return f"{self.source}, row {self.get_number(row) + 1}" + ("" if column is None else f", column {column!r}")

    def check_column(self, column: str, is_right: Callable[[Any], bool], what: str, fix: str) -> None:
        """Raise for the first row whose value in a column is not right."""
        for _, error in self.find_wrong(column, is_right, what, fix):
            raise error

    def find_wrong(
        self, column: str, is_right: Callable[[Any], bool], what: str, fix: str
    ) -> Iterator[tuple[int, DataError]]:
        """Yield the rows whose value in a column is not right, each with the error about it."""
        try:
            for row, value in enumerate(self.read_column(column)):
                if not is_right(value):
                    yield row, self.build_error(row, column, what, fix)
        except UnicodeDecodeError as error:  # JSON is not decoded before it is accessed
            raise find_encoding_error(Path(self.source)) or error from None

    def check_texts(self, *columns: str) -> None:
        """Raise for rows where one of these columns holds no text."""
        for column in columns:
            self.check_column(column, _is_text, "this is not a text", "correct the row, or remove it")

    def take(self, count: int | None) -> Split:
        """Return the first `count` rows."""
        return self if count is None or count >= len(self) else self.select(range(count))

    def select(self, places: Sequence[int]) -> Split:
        """Return some of the rows; messages keep their numbers in the source."""
        numbers = places if self.numbers is None else [int(self.numbers[place]) for place in places]
        return replace(self, rows=self.rows.select(places), numbers=numbers)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class RowReader:
    """How the rows of files and datasets are read, divided and limited. `options` go to the reader of text files."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def read_file(self, file: str, name: str) -> Split:
        """Return the rows of a file, or of a directory that `datasets` has saved."""
        return _read_file(file, name, **self.options)

    def read_dataset(self, arguments: DataArguments, wanted: Sequence[str]) -> dict[str, Split]:
        """Return the splits of a dataset for these purposes, as far as it has them."""
        return _read_dataset(arguments, wanted)

    def list_splits(self, arguments: DataArguments, wanted: Sequence[str]) -> list[str]:
        """Return the names of the splits that `read_dataset` returns."""
        return list(self.read_dataset(arguments, wanted))

    def divide(self, train: Split, percent: float, *, needs_both: bool) -> dict[str, Split]:
        """Return training rows, and validation rows held back of them."""
        return _divide(train, percent, needs_both=needs_both)

    def limit(self, split: Split, count: int) -> Split:
        """Return `count` of the rows."""
        return split.take(count)


def read_splits(arguments: DataArguments, wanted: Sequence[str], reader: RowReader | None = None) -> dict[str, Split]:
    """Return the rows of every purpose in `wanted`, by name, limited to the requested number."""
    reader = reader or RowReader()
    _check_sources(arguments, wanted)
    splits = _read_purposes(arguments, wanted, reader)
    share = arguments.validation_split_percentage
    if share and {TRAIN, VALIDATION} & set(wanted) and not _has_validation(arguments, splits, reader):
        # Also if only one of them is wanted: rows kept for evaluation are not trained on, in any command.
        train = splits.get(TRAIN) or _read_purposes(arguments, [TRAIN], reader).get(TRAIN)
        parts = reader.divide(train, share, needs_both=VALIDATION in wanted) if train else {}
        splits |= {name: part for name, part in parts.items() if name in wanted}
    for name in wanted:
        if name not in splits:
            raise _build_missing_error(arguments, name)
    limits = {
        TRAIN: arguments.max_train_samples,
        VALIDATION: arguments.max_eval_samples,
        TEST: arguments.max_predict_samples,
    }
    counts = {name: limits[name.partition("_")[0]] for name in splits}
    return {
        name: split if (count := counts[name]) is None or count >= len(split) else reader.limit(split, count)
        for name, split in splits.items()
    }


def find_purposes(arguments: DataArguments, reader: RowReader | None = None) -> list[str]:
    """Return the purposes for which the arguments name rows; reads a dataset to find its splits."""
    named = [name for name in (TRAIN, VALIDATION, TEST) if _get_file(arguments, name)]
    if arguments.dataset_name is not None:
        splits = (reader or RowReader()).list_splits(arguments, [TRAIN, VALIDATION, TEST])
        named = [name.partition("_")[0] for name in splits]
    if TRAIN in named and arguments.validation_split_percentage:
        named.append(VALIDATION)
    return list(dict.fromkeys(named))


def _read_purposes(arguments: DataArguments, wanted: Sequence[str], reader: RowReader) -> dict[str, Split]:
    if arguments.dataset_name is not None:
        return reader.read_dataset(arguments, wanted)
    return {name: reader.read_file(file, name) for name in wanted if (file := _get_file(arguments, name))}


def _has_validation(arguments: DataArguments, splits: Mapping[str, Split], reader: RowReader) -> bool:
    if VALIDATION in splits or arguments.dataset_name is None:
        return VALIDATION in splits or arguments.validation_file is not None
    return VALIDATION in reader.read_dataset(arguments, [VALIDATION])


def _check_sources(arguments: DataArguments, wanted: Sequence[str]) -> None:
    files = [name for name in (TRAIN, VALIDATION, TEST) if _get_file(arguments, name)]
    if arguments.dataset_name is None and not files:
        raise ConfigError(
            what="there are no rows",
            why="neither a file nor a dataset is given",
            fix=f"add {' '.join(f'--{name}_file FILE' for name in wanted)}, or --dataset_name NAME; "
            "or try the recipe with --sample",
        )
    if arguments.dataset_name is not None and files:
        raise ConfigError(
            what=f"--dataset_name {arguments.dataset_name} and --{files[0]}_file {_get_file(arguments, files[0])}",
            why="rows are read from a dataset or from files",
            fix="remove one of them",
        )


def _build_missing_error(arguments: DataArguments, name: str) -> ConfigError:
    where = f"dataset {arguments.dataset_name!r} has no split {name!r}" if arguments.dataset_name else "no file"
    further = " or --validation_split_percentage 5" if name == VALIDATION else ""
    return ConfigError(
        what=f"there are no {name} rows",
        why=f"{_FLAGS[name]} needs them, and {where}" + ("" if arguments.dataset_name else " is given"),
        fix=f"add {f'--{name}_split_name NAME' if arguments.dataset_name else f'--{name}_file FILE'}{further}, "
        f"or remove {_FLAGS[name]}",
    )


def _get_file(arguments: DataArguments, name: str) -> str | None:
    return getattr(arguments, f"{name}_file")


def _divide(train: Split, percent: float, *, needs_both: bool) -> dict[str, Split]:
    count = round(len(train) * percent / 100)
    if count == 0 and not needs_both:
        return {TRAIN: train}
    if not 0 < count < len(train):
        raise build_share_error(percent, train, count)
    rows, source = train.rows, train.source
    return {
        TRAIN: Split(
            TRAIN, rows.select(range(count, len(rows))), f"{source} from row {count + 1} on", train.directory
        ),
        VALIDATION: Split(
            VALIDATION, rows.select(range(count)), f"the first {percent:g} % of {source}", train.directory
        ),
    }


def build_share_error(percent: float, train: Split, count: int) -> ConfigError:
    """Return the error about a share of the training rows that leaves none on one side."""
    return ConfigError(
        what=f"--validation_split_percentage {percent:g} of {len(train)} rows are {count}",
        why="both training and evaluation need rows",
        fix="choose another share, or add --validation_file FILE",
    )


# ---- files ----------------------------------------------------------------------------------------------------------


def _read_file(file: str | None, name: str, **reader_options: Any) -> Split:
    path = Path(str(file))
    if path.is_dir():
        return Split(name, _load_directory(path, name), str(file))
    ending = next((ending for ending in reversed(path.suffixes) if ending.lower() != ".gz"), "").lower()
    if ending not in READERS:
        raise ConfigError(
            what=f"--{name}_file {file}: a file of format {ending or 'unknown'!r} cannot be read",
            why=f"the supported formats are {', '.join(READERS)}",
            fix="convert the file, or give it the suffix of its format",
        )
    if not path.is_file():
        near = (
            get_close_matches(path.name, [each.name for each in path.parent.iterdir()]) if path.parent.is_dir() else []
        )
        raise ConfigError(
            what=f"--{name}_file {file}: there is no such file",
            why=f"the directory searched is {path.parent.resolve()}",
            fix=f"did you mean {path.with_name(near[0])}?" if near else "check the path",
        )
    if path.stat().st_size == 0:
        raise _build_no_rows_error(str(file))
    options = dict(reader_options) if READERS[ending] == "text" else {}
    if READERS[ending] == "csv":
        options = {"keep_default_na": False, "na_values": [""]}  # "NA", "null" and "None" are ordinary texts
    if ending == ".tsv":
        options["delimiter"] = "\t"
    if ending == ".json" and _has_rows_under_data(path):
        options["field"] = "data"  # {"version": ..., "data": [rows]}, as in SQuAD and others
    return Split(name, _load_file(path, READERS[ending], options), str(file), path.parent)


def _load_file(path: Path, reader: str, options: Mapping[str, Any]) -> Any:
    datasets = import_datasets()
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # a broken file is reported below
    try:
        rows = datasets.load_dataset(reader, data_files={TRAIN: str(path)}, split=TRAIN, **options)
    except Exception as error:  # datasets, pandas and pyarrow raise types of their own, without a common base
        if isinstance(error, ValueError) and "corresponds to no data" in str(error):
            raise _build_no_rows_error(str(path)) from None
        raise find_file_error(path, reader) or DataError(
            what=f"{path} cannot be read as {reader}",
            why=" ".join(str(error.__cause__ or error).split()),
            fix="correct the file, or give it the suffix of its format",
        ) from error
    finally:
        datasets.logging.set_verbosity(verbosity)
    if len(rows) == 0:
        raise _build_no_rows_error(str(path))
    return rows


def _load_directory(path: Path, name: str) -> Any:
    """Return the rows that `Dataset.save_to_disk` wrote; a directory with several splits has another flag."""
    if (path / _SAVED_DATASET).is_file():
        return import_datasets().load_from_disk(str(path))
    several = (path / _SAVED_SPLITS).is_file()
    raise ConfigError(
        what=f"--{name}_file {path} is a directory",
        why="it holds several splits saved by `datasets`" if several else "rows are read from one file",
        fix=f"--dataset_name {path}"
        if several
        else f"use a file in it: {format_names(_list_readable_files(path)) or 'there is none'}",
    )


def _list_readable_files(directory: Path) -> list[str]:
    return sorted(str(each) for each in directory.iterdir() if READERS.keys() & {end.lower() for end in each.suffixes})


def _build_no_rows_error(source: str) -> DataError:
    return DataError(f"{source} holds no rows", "the file is empty, or has only a header", "use a file with rows")


def _has_rows_under_data(path: Path) -> bool:
    try:
        with open_text(path) as file:
            beginning = file.read(1 << 16).lstrip()
            if not beginning.startswith("{") or '"data"' not in beginning:
                return False
            content = json.loads(beginning + file.read())
    except (ValueError, OSError):
        return False  # rows line by line, or broken: the reader finds out
    return isinstance(content.get("data"), list)


# ---- datasets -------------------------------------------------------------------------------------------------------


def import_datasets() -> Any:
    """Return `datasets`, or raise an error that says how to install it."""
    try:
        import datasets  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            what="rows cannot be read", why="`datasets` is not installed", fix="pip install 'ostinato[hf]'"
        ) from None
    return datasets


def _read_dataset(arguments: DataArguments, wanted: Sequence[str]) -> dict[str, Split]:
    datasets, name = import_datasets(), str(arguments.dataset_name)
    directory = Path(name)
    try:
        if (directory / _SAVED_DATASET).is_file():
            whole: Any = {TRAIN: datasets.load_from_disk(name)}
        elif (directory / _SAVED_SPLITS).is_file():
            whole = datasets.load_from_disk(name)
        else:
            whole = datasets.load_dataset(name, arguments.dataset_config_name)
    except Exception as error:
        raise ConfigError(
            what=f"--dataset_name {name} cannot be read",
            why=" ".join(str(error).split())[:300],
            fix="check the name and --dataset_config_name; offline, use files: --train_file FILE",
        ) from error
    splits: dict[str, Split] = {}
    for purpose in wanted:
        requested = getattr(arguments, f"{purpose}_split_name") or purpose
        if requested in whole:
            splits[purpose] = Split(purpose, whole[requested], f"{name}, split {requested!r}")
            continue
        if getattr(arguments, f"{purpose}_split_name"):
            raise ConfigError(
                what=f"{name} has no split {requested!r}", why=f"it has {', '.join(whole)}", fix="name one of these"
            )
        for further in (f"{purpose}_matched", f"{purpose}_mismatched"):  # as in MNLI
            if further in whole:
                key = purpose if further.endswith("_matched") else f"{purpose}_mm"
                splits[key] = Split(key, whole[further], f"{name}, split {further!r}")
    return splits


# ---- labels ---------------------------------------------------------------------------------------------------------


def find_most_common(values: Iterable[Any]) -> tuple[Any, float]:
    """Return the most frequent value and its share.

    >>> find_most_common(["a", "b", "a", "a"])
    ('a', 0.75)
    """
    value, count = (counts := Counter(values)).most_common(1)[0]
    return value, count / counts.total()


def format_names(names: Sequence[Any], shown: int = _MAX_SHOWN) -> str:
    """Return the first few names.

    >>> format_names(["a", "b", "c"], 2)
    'a, b, … (3)'
    """
    listed = ", ".join(map(str, names[:shown]))
    return listed if len(names) <= shown else f"{listed}, … ({len(names)})"
