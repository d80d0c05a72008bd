"""Base class of recipes. Everything has a default but the name, the model and the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ostinato import Trainer, TrainingArguments

from .feature_cache import encode_split
from .models import load_model
from .rows import Split, find_purposes, read_splits
from .samples import Sample, write_task_sample
from .task_arguments import DataArguments, EncodingArguments, ModelArguments, TokenizerArguments
from .text_models import build_text_model

Columns = Mapping[str, list[Any]]


class Recipe:
    """A task: its flags, columns, model and metric. `run` does everything else, in the order of the methods below.

    An object lives as long as one command. `arguments` and `training` exist from the beginning, `config` from
    `get_tokenizer_arguments` on, `tokenizer` from `prepare_config` on. The tokenizer's `model_input_names` decide
    which columns the model gets.

    Args:
        arguments: The data arguments: an `arguments_class`.
        training: The training arguments: a `training_class`.

    >>> class Shouting(Recipe):  # doctest: +SKIP
    ...     name = "shouting"
    ...     model_class = "AutoModelForSequenceClassification"
    ...
    ...     def encode(self, rows, split):
    ...         return {**self.tokenizer(rows["text"]), "labels": [text.isupper() for text in rows["text"]]}
    >>> run(Shouting, ["--train_file", "rows.csv", "--do_train", ...])  # doctest: +SKIP
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    model_class: ClassVar[str]  # of transformers: "AutoModelForSequenceClassification"
    arguments_class: ClassVar[type[DataArguments]] = EncodingArguments
    model_arguments_class: ClassVar[type[ModelArguments]] = TokenizerArguments
    training_class: ClassVar[type[TrainingArguments]] = TrainingArguments
    trainer_class: ClassVar[type[Trainer]] = Trainer
    defaults: ClassVar[Mapping[str, Any]] = {}  # of arguments for which the task has a better default
    needs_padding: bool = True  # a tokenizer without a pad token is an error; may depend on the arguments

    def __init__(self, arguments: Any, training: Any) -> None:
        self.arguments = arguments
        self.training = training
        self.tokenizer: Any = None
        self.config: Any = None

    # ---- rows ------------------------------------------------------------------------------------------------

    def list_purposes(self) -> list[str]:
        """Return the purposes for which the arguments name rows: "train", "validation", "test"."""
        return find_purposes(self.arguments)

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        """Read the rows.

        Args:
            wanted: Purposes: "train", "validation", "test".

        Returns:
            The rows of each.
        """
        return read_splits(self.arguments, wanted)

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        """Find columns and labels; raise for rows that cannot be learned from, naming file, column and row.

        Args:
            splits: The rows by purpose.
        """

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        """Iterate over the texts of some rows, to train a tokenizer on.

        Args:
            rows: The rows, column by column.

        Returns:
            An iterator over texts.
        """
        return (value for column in rows.values() for value in column if isinstance(value, str))

    # ---- model -----------------------------------------------------------------------------------------------

    def build_model(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        """Build the model, and set `config` and `tokenizer`. Calls the other methods of this section.

        Args:
            arguments: Those of the model.
            splits: The rows by purpose.

        Returns:
            The model.
        """
        return build_text_model(self, arguments, splits)

    @property
    def processing_class(self) -> Any:
        """What makes the model's input of rows, and is saved with the model: the tokenizer."""
        return self.tokenizer

    def get_tokenizer_arguments(self) -> dict[str, Any]:
        """Return further arguments of the tokenizer's `from_pretrained`."""
        return {}

    def prepare_config(self, config: Any) -> None:
        """Write what the rows need into the config: the number of labels, their names.

        Args:
            config: The config, which is changed in place.
        """

    def load_model(self, arguments: ModelArguments) -> Any:
        """Load the model by path or name, or make a new one from `config`.

        Args:
            arguments: Those of the model.

        Returns:
            The model.
        """
        return load_model(self.model_class, arguments, self.config)

    def prepare_model(self, model: Any) -> None:
        """Adjust model and tokenizer to each other before rows are encoded.

        Args:
            model: The model, which may be changed in place.
        """

    # ---- features --------------------------------------------------------------------------------------------

    def build_features(self, split: Split) -> Any:
        """Encode the rows of a split with `encode`, and cache the result.

        Args:
            split: The rows of one purpose.

        Returns:
            A data set.
        """
        return encode_split(self, split)

    def describe_features(self, features: Any) -> str:
        """Describe the features, for `--plan`.

        Args:
            features: What `build_features` returned.

        Returns:
            One line.
        """
        return f"encoded: {len(features):,} rows of {', '.join(features.column_names)}"

    def describe_first_row(self, features: Any) -> str:
        """Describe the first row as the model reads it, for `--plan`.

        Args:
            features: What `build_features` returned.

        Returns:
            One line.
        """
        ids = features[0].get("input_ids") if len(features) else None
        if ids is None or self.tokenizer is None:
            return "it has no input_ids"
        several = ids if ids and isinstance(ids[0], list) else [ids]
        padding = self.tokenizer.pad_token_id
        return " | ".join(self.tokenizer.decode([one for one in each if one != padding]) for each in several)

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        """Return features for rows. There may be more features than rows.

        The result may depend on `arguments`, `tokenizer`, `config` and the findings of `inspect_splits`, and on
        nothing else, not even on `training`: it is cached by these.

        Args:
            rows: The rows, column by column. Columns are lists.
            split: "train", "validation" or "test".

        Returns:
            The features, column by column.

        Raises:
            NotImplementedError: The recipe has no encoding.
        """
        raise NotImplementedError

    def transform_features(self, features: Any, split: str, encode: Callable[..., Any]) -> Any:
        """Return the features as another data set, such as a grouped one.

        Args:
            features: The encoded rows.
            split: "train", "validation" or "test".
            encode: `encode(features, function)` maps a data set, with the cache.

        Returns:
            A data set.
        """
        return features

    def build_collator(self, model: Any) -> Any:
        """Make the collator; None leaves it to the trainer.

        Args:
            model: The model that is trained.

        Returns:
            A collator, or None.
        """
        return None

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        """Choose further arguments of the trainer: `compute_metrics`, `preprocess_logits_for_metrics`, …

        Args:
            splits: The rows by purpose.
            features: The encoded rows by purpose.

        Returns:
            Arguments by name.
        """
        return {}

    def get_generation_arguments(self) -> dict[str, Any]:
        """Return further arguments of `evaluate` and `predict`: the generation options of a seq2seq model."""
        return {}

    # ---- results ---------------------------------------------------------------------------------------------

    def write_model_files(self, model: Any, directory: Path) -> None:
        """Write further files beside the trained model; called on the main process.

        Args:
            model: The trained model.
            directory: Where it is saved.
        """

    def add_metrics(self, metrics: dict[str, float], prefix: str) -> None:
        """Add what follows from the metrics of an evaluation, such as perplexity from the loss.

        Args:
            metrics: The metrics, to which others are added.
            prefix: What their names begin with: "eval" or "predict".
        """

    def predict(self, trainer: Trainer, features: Any, rows: Any) -> Any:
        """Predict for the features of some rows.

        Args:
            trainer: The trainer.
            features: The encoded test set.
            rows: Its rows.

        Returns:
            A `PredictionOutput`.
        """
        return trainer.predict(features, metric_key_prefix="predict", **self.get_generation_arguments())

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        """Yield a readable dict of predictions for each row of the test set.

        Args:
            output: What `predict` returned.
            rows: The rows of the test set.

        Yields:
            A dict for each row.
        """
        return iter(())

    def preview_predictions(self) -> Iterator[str]:
        """Yield a few lines about what was predicted last, to be shown at the end.

        Yields:
            Lines of text.
        """
        return iter(())

    def write_evaluation_files(self, rows: Any, directory: Path) -> None:
        """Write files about the last evaluation; called on the main process.

        Args:
            rows: The rows of the evaluation.
            directory: Where to write.
        """

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Write further files of predictions, under the names that other tools expect.

        Args:
            output: What `predict` returned.
            rows: The rows of the test set.
            directory: Where to write.
        """

    def get_card_arguments(self) -> dict[str, Any]:
        """Return the facts about the task for the model card: arguments of `create_model_card`."""
        return {"tasks": self.name}

    # ---- sample ----------------------------------------------------------------------------------------------

    @classmethod
    def write_sample(cls, directory: Path) -> Sample:
        """Write a small sample into a directory; see `samples/`.

        Args:
            directory: Where to write the rows.

        Returns:
            The words of the command, and what it has to surpass.
        """
        return write_task_sample(cls.name, directory)
