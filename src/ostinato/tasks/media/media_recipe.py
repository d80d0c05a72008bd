"""The base of recipes for images and sound: rows are not encoded beforehand, but read when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ostinato import DataError
from ostinato.logging import get_logger

from ..models import load_config
from ..recipe import Recipe
from ..rows import TRAIN, Split, find_purposes, read_splits
from ..task_arguments import DataArguments, ModelArguments
from .decoded_cache import DecodedCache
from .media_arguments import MediaArguments
from .media_files import MediaFile
from .media_reader import (
    MediaKind,
    MediaReader,
    check_files,
    drop_unreadable_rows,
    find_media_column,
    reject_rows,
)
from .media_rows import MediaRows


class MediaRecipe(Recipe):
    """A task whose rows hold files. A recipe defines `kind`, `decode`, `load_processor` and `read_row`.

    `processor` takes the place of a tokenizer: an image processor, a feature extractor, or both with a tokenizer. It
    exists from `prepare_config` on.
    """

    arguments_class: ClassVar[type[DataArguments]] = MediaArguments
    model_arguments_class: ClassVar[type[ModelArguments]] = ModelArguments
    kind: ClassVar[MediaKind]
    column_flag: ClassVar[str]  # the option that names the column of files: "image_column_name"

    media_column: str  # in the rows of every split

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.processor: Any = None
        directory = arguments.decoded_cache_dir
        self.cache = None if directory is None else DecodedCache(Path(directory))
        self.directories: dict[str, Path] = {}
        for name in ("preprocessing_num_workers", "overwrite_cache"):
            if getattr(arguments, name):
                get_logger().info(
                    f"--{name} has no effect: rows are read when they are needed (--dataloader_num_workers)"
                )

    # ---- rows ------------------------------------------------------------------------------------------------

    def list_purposes(self) -> list[str]:
        return find_purposes(self.arguments, self.build_reader())

    def build_reader(self) -> MediaReader:
        """Return what reads the rows."""
        return MediaReader(self.kind, skips_bad_rows=bool(self.training.skip_bad_rows))

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        splits = read_splits(self.arguments, wanted, self.build_reader())
        self.directories = {name.partition("_")[0]: split.directory for name, split in splits.items()}
        self.find_columns(splits)
        for name, split in splits.items():
            purpose = name.partition("_")[0]
            splits[name] = self.reject_rows(split, self.find_bad_values(split))
            if not self.training.skip_bad_rows:
                self.check_split(split)
            elif purpose != TRAIN:  # training rows that cannot be read are skipped when they are met
                splits[name] = drop_unreadable_rows(splits[name], partial(self.check_row, purpose=purpose))
        return splits

    def find_bad_values(self, split: Split) -> Iterator[tuple[int, DataError]]:
        """Yield the rows that lack what is to be learned, such as a label, with an error; no file is opened."""
        return iter(())

    def reject_rows(self, split: Split, problems: Iterable[tuple[int, DataError]]) -> Split:
        """Raise the first of some rows' problems; with `skip_bad_rows`, list them and return the other rows."""
        return reject_rows(split, problems, skips=bool(self.training.skip_bad_rows))

    def find_columns(self, splits: Mapping[str, Split]) -> None:
        """Find the columns of files."""
        requested = getattr(self.arguments, self.column_flag)
        for split in splits.values():
            self.media_column = find_media_column(split, self.kind, requested, f"--{self.column_flag}")

    def check_split(self, split: Split) -> None:
        """Raise for the first row whose file is missing or empty; files are not opened."""
        check_files(split, self.media_column)

    def check_row(self, row: Mapping[str, Any], purpose: str) -> None:
        """Raise a DataError if a row cannot be read: with `skip_bad_rows`, called for all but training rows."""
        self.open_row(row, purpose)

    # ---- model -----------------------------------------------------------------------------------------------

    def build_model(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        self.config = self.load_config(arguments)
        self.processor = self.load_processor(arguments, splits)
        self.prepare_config(self.config)
        model = self.load_model(arguments)
        self.prepare_model(model)
        return model

    def load_config(self, arguments: ModelArguments) -> Any:
        """Return the config of the named model, or of a new one of its type."""
        return load_config(arguments)

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        """Return the processor: that of the model, another one, or a new one that fits the config."""
        raise NotImplementedError

    @property
    def processing_class(self) -> Any:
        return self.processor

    # ---- features --------------------------------------------------------------------------------------------

    def open(self, value: Any, directory: Path) -> Any:
        """Return a value of a row, decoded; raise a DataError that names the file if that is impossible."""
        raise NotImplementedError

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        """Return the model's input for a row. In training it may draw random numbers; they are the row's own."""
        raise NotImplementedError

    def open_row(self, row: Mapping[str, Any], purpose: str) -> Any:
        """Return the decoded file of a row."""
        return self.open(row[self.media_column], self.directories[purpose])

    def build_features(self, split: Split) -> MediaRows:
        return MediaRows(split, _RowFunction(self, split.name.partition("_")[0]))

    def find_file(self, row: Mapping[str, Any]) -> str:
        """Return the name of a row's file, as the row has it."""
        file = MediaFile.from_value(row[self.media_column], Path())
        return "" if file is None else file.name

    def draw_row(self, row: Mapping[str, Any]) -> Any:
        """Return the picture of a row to predict for the report, an image of Pillow."""
        raise NotImplementedError

    def describe_features(self, features: Any) -> str:
        columns = ", ".join(f"{name} {_describe_shape(value)}" for name, value in features[0].items())
        return f"read when needed: {len(features):,} rows of {columns}"

    def describe_first_row(self, features: Any) -> str:
        row = features.split.rows[0]
        file = MediaFile.from_value(row[self.media_column], Path())
        others = {name: value for name, value in row.items() if name != self.media_column}
        return ", ".join([file.name if file else self.media_column, *(f"{k} {v!r}" for k, v in others.items())])


class _RowFunction:
    """A recipe's `read_row` for one purpose; not a closure, so that it can be sent to worker processes."""

    def __init__(self, recipe: MediaRecipe, purpose: str) -> None:
        self.recipe, self.purpose = recipe, purpose

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return self.recipe.read_row(row, self.purpose)


def _describe_shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return "" if shape is None else f"({', '.join(map(str, shape))})"
