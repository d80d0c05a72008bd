"""Common part of tasks in which a model reads a text and writes another: summarization, translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ostinato import ConfigError, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from ostinato.logging import get_logger

from .languages import find_token_id, is_multilingual, set_languages
from .recipe import Columns, Recipe
from .rows import TEST, Split
from .task_arguments import EncodingArguments, flag

GENERATED_NAME = "generated_predictions.txt"
IGNORE_INDEX = -100  # labels with this number do not count in the loss
_SOURCE_IS_CUT, _TARGET_IS_CUT = "_source_is_cut", "_target_is_cut"


@dataclass
class TextToTextArguments(EncodingArguments):
    """The lengths of texts, and the generation options."""

    max_source_length: int = flag(1024, "The maximum length of a source in tokens; longer ones are truncated.")
    max_target_length: int = flag(128, "The maximum length of a target in tokens; longer ones are truncated.")
    val_max_target_length: int | None = flag(
        None, "The same for evaluation, and the maximum length of a generated text. By default --max_target_length."
    )
    pad_to_max_length: bool = flag(
        False, "Pad every row to the maximum length. `false` is faster: it pads every batch to its longest row."
    )
    num_beams: int | None = flag(None, "The number of beams. By default that of the model.")
    ignore_pad_token_for_loss: bool = flag(True, "Whether the padding of labels is left out of the loss.")
    source_prefix: str | None = flag(None, "A text before every source, as T5 expects it: 'summarize: '.")
    forced_bos_token: str | None = flag(None, "The token that every generated text begins with, such as a language.")

    def __post_init__(self) -> None:
        if self.val_max_target_length is None:
            self.val_max_target_length = self.max_target_length


class TextToText(Recipe):
    """Recipe with a source text and a target that a model learns to write. The task defines which is which."""

    model_class = "AutoModelForSeq2SeqLM"
    training_class = Seq2SeqTrainingArguments
    trainer_class = Seq2SeqTrainer
    language_flags: ClassVar[tuple[str, str]]  # the options that name the languages of source and target

    source_name: str  # the names of the two sides in messages and in predictions
    target_name: str
    test_has_targets: bool = True
    source_limit: int  # in tokens

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.source_limit = arguments.max_source_length
        # Evaluations during training generate as the last one does.
        training.generation_max_length = training.generation_max_length or arguments.val_max_target_length
        training.generation_num_beams = arguments.num_beams or training.generation_num_beams
        if training.do_predict and not training.predict_with_generate:
            raise ConfigError(
                what="--do_predict without --predict_with_generate",
                why="without it predictions are the logits of known targets, not generated texts",
                fix="add --predict_with_generate",
            )

    # ---- task ------------------------------------------------------------------------------------------------

    def find_sides(self, split: Split) -> None:
        """Set `source_name` and `target_name` by the arguments and the first split."""
        raise NotImplementedError

    def require_sides(self, split: Split, *sides: str) -> None:
        """Raise for rows that have no place for one of the sides."""
        raise NotImplementedError

    def get_column(self, split: Split, side: str) -> str:
        """Return the column that holds a side."""
        return side

    def read_side(self, rows: Columns, name: str) -> Sequence[Any]:
        """Return the texts of one side; None for rows without one."""
        return rows[name] if name in rows else [None] * len(next(iter(rows.values())))

    def get_languages(self) -> tuple[str | None, str | None]:
        """Return the languages of source and target, as the tokenizer names them."""
        return None, None

    def build_metric(self) -> Callable[[list[str], list[str]], dict[str, float]]:
        """Return the function that compares generated texts with their references."""
        raise NotImplementedError

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        splits = super().read(wanted)
        self.find_sides(next(iter(splits.values())))
        for name, split in splits.items():
            self.require_sides(split, self.source_name, *([] if name.startswith(TEST) else [self.target_name]))
        return {name: self._drop_incomplete_rows(split) for name, split in splits.items()}

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        get_logger().info(f"reads {self.source_name!r}, writes {self.target_name!r}")

    def _drop_incomplete_rows(self, split: Split) -> Split:
        """Return the rows that have both sides. Test rows are all kept, and need no targets."""
        missing = dict(self._find_missing_sides(split))
        if split.name.startswith(TEST):
            self._check_test(split, missing)
            return split
        if not missing:
            return split
        row, name = next(iter(missing.items()))
        column = self.get_column(split, name)
        if len(missing) == len(split):
            raise split.build_error(
                row, column, f"no text for {name!r}, as in every row", "use rows that have both texts"
            )
        get_logger().info(
            f"{split.source}: {len(missing)} of {len(split)} rows are dropped: they lack a text; "
            f"the first is row {row + 1}, column {column!r}, without {name!r}"
        )
        return replace(split, rows=split.rows.select([row for row in range(len(split)) if row not in missing]))

    def _find_missing_sides(self, split: Split) -> Iterator[tuple[int, str]]:
        """Yield the rows that lack a side, and which side; raise for values that are not text."""
        for row, (source, target) in enumerate(self._iterate_pairs(split)):
            for name, value in ((self.target_name, target), (self.source_name, source)):
                if value is not None and not isinstance(value, str):
                    raise split.build_error(
                        row, self.get_column(split, name), f"{name!r} is not a text", "correct the row"
                    )
                if not (value or "").strip():
                    yield row, name

    def _check_test(self, split: Split, missing: Mapping[int, str]) -> None:
        for row, name in missing.items():
            if name == self.source_name:
                raise split.build_error(
                    row, self.get_column(split, name), f"{name!r} is empty", "correct the row, or remove it"
                )
        self.test_has_targets = not missing
        if missing:
            get_logger().info(
                f"{split.source}: {len(missing)} of {len(split)} rows have no {self.target_name!r}: "
                "texts are generated but not measured"
            )

    def _iterate_pairs(self, split: Split) -> Iterator[tuple[Any, Any]]:
        for rows in split.rows.iter(1000):
            yield from zip(self.read_side(rows, self.source_name), self.read_side(rows, self.target_name), strict=True)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        prefix = self.arguments.source_prefix or ""
        yield from (prefix + text for text in self.read_side(rows, self.source_name))
        yield from self.read_side(rows, self.target_name)

    # ---- model -----------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        if not config.is_encoder_decoder:
            raise ConfigError(
                what=f"a model of type {config.model_type!r} cannot be trained for {self.name}",
                why="it is not an encoder-decoder model",
                fix="use an encoder-decoder model: t5, bart, mbart, marian, pegasus, …; for others see the task clm",
            )
        prefix = self.arguments.source_prefix
        for task, options in (getattr(config, "task_specific_params", None) or {}).items():
            if prefix is None and task.startswith(self.name) and options.get("prefix"):
                get_logger().info(f"the model expects a prefix for {task}: --source_prefix {options['prefix']!r}")
        if prefix:  # so that the saved model contains it
            config.task_specific_params = {self.name: {"prefix": prefix}}

    def prepare_model(self, model: Any) -> None:
        self._set_languages(model)
        if model.config.decoder_start_token_id is None:
            raise ConfigError(
                what=f"{type(model).__name__} has no start token for generated texts",
                why="its config has no decoder_start_token_id",
                fix="add --config_overrides decoder_start_token_id=ID, often the id of the pad or the end token",
            )
        self._check_lengths(model)

    def _set_languages(self, model: Any) -> None:
        tokenizer, forced = self.tokenizer, self.arguments.forced_bos_token
        if is_multilingual(tokenizer):
            source, target = self.get_languages()
            set_languages(tokenizer, source, target, self.language_flags)
            if model.config.decoder_start_token_id is None:  # in the first mBART, texts begin with their language
                start = find_token_id(tokenizer, str(target), self.language_flags[1])
                model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = start
            elif forced is None and model.generation_config.forced_bos_token_id is None:
                get_logger().info(f"--forced_bos_token {target} makes every generated text begin with that language")
        if forced is not None:
            model.generation_config.forced_bos_token_id = find_token_id(tokenizer, forced, "--forced_bos_token")

    def _check_lengths(self, model: Any) -> None:
        """Keep texts within the positions that a model has."""
        arguments, positions = self.arguments, _count_positions(model.config, "decoder")
        lengths = {name: getattr(arguments, name) for name in ("max_target_length", "val_max_target_length")}
        for name, length in {**lengths, "generation_max_length": self.training.generation_max_length}.items():
            if positions is not None and length > positions:
                raise ConfigError(
                    what=f"--{name} {length} is more than the model can generate",
                    why=f"{type(model).__name__} has {positions} positions",
                    fix=f"--{name} {positions}",
                )
        positions = _count_positions(model.config, "encoder")
        if (
            positions is not None
            and arguments.max_source_length > positions
            and not self.extend_positions(model, positions)
        ):
            get_logger().info(
                f"texts are truncated to {positions} tokens, the number of positions of the model, "
                f"instead of --max_source_length {arguments.max_source_length}"
            )
            self.source_limit = positions

    def extend_positions(self, model: Any, positions: int) -> bool:
        """Return whether the model got further positions for longer sources."""
        return False

    # ---- features --------------------------------------------------------------------------------------------

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        arguments = self.arguments
        prefix = arguments.source_prefix or ""
        sources = [prefix + text for text in self.read_side(rows, self.source_name)]
        features, source_is_cut = self._tokenize({"text": sources}, self.source_limit)
        features[_SOURCE_IS_CUT] = source_is_cut
        if split != TEST or self.test_has_targets:
            targets = {"text_target": list(self.read_side(rows, self.target_name))}
            longest = arguments.max_target_length if split == "train" else arguments.val_max_target_length
            labels, features[_TARGET_IS_CUT] = self._tokenize(targets, longest)
            features["labels"] = [self._mask_padding(ids) for ids in labels["input_ids"]]
        return features

    def _tokenize(self, texts: Mapping[str, list[str]], longest: int) -> tuple[dict[str, Any], list[bool]]:
        """Return texts as tokens, and which of them were cut."""
        padding = "max_length" if self.arguments.pad_to_max_length else False
        made = self.tokenizer(**texts, max_length=longest, padding=padding, truncation=True)
        if made.encodings is not None:
            return dict(made), [bool(one.overflowing) for one in made.encodings]
        whole = self.tokenizer(**texts, verbose=False)["input_ids"]  # a tokenizer in Python keeps no remainder
        return dict(made), [len(ids) > longest for ids in whole]

    def _mask_padding(self, ids: list[int]) -> list[int]:
        """Return labels; padding to the full length does not count."""
        if not (self.arguments.pad_to_max_length and self.arguments.ignore_pad_token_for_loss):
            return ids
        return [IGNORE_INDEX if number == self.tokenizer.pad_token_id else number for number in ids]

    def transform_features(self, features: Any, split: str, encode: Callable[..., Any]) -> Any:
        """Log how many rows were cut. The number is kept with the features, so that cached ones are reported too."""
        option = "max_target_length" if split == "train" else "val_max_target_length"
        limits = {
            _SOURCE_IS_CUT: f"sources to {self.source_limit} tokens (--max_source_length)",
            _TARGET_IS_CUT: f"targets to {getattr(self.arguments, option)} (--{option})",
        }
        limits = {column: limit for column, limit in limits.items() if column in features.column_names}
        counts = {limit: sum(features[column]) for column, limit in limits.items()}
        messages = [f"{count:,} {limit}" for limit, count in counts.items() if count]
        if messages:
            get_logger().info(f"{split}: truncated {' and '.join(messages)}, of {len(features):,} rows")
        return features.remove_columns(list(limits))

    def build_collator(self, model: Any) -> Any:
        return DataCollatorForSeq2Seq(
            self.tokenizer,
            model=model,
            label_pad_token_id=IGNORE_INDEX
            if self.arguments.ignore_pad_token_for_loss
            else self.tokenizer.pad_token_id,
            pad_to_multiple_of=8 if self.training.fp16 else None,
        )

    # ---- results ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        if not self.training.predict_with_generate:
            if self.training.do_eval:
                get_logger().info("only the loss is measured: metrics of generated texts need --predict_with_generate")
            return {}
        measure = self.build_metric()

        def compute(prediction: Any) -> dict[str, float]:
            written = _get_generated_ids(prediction.predictions)
            result = measure(self._decode(written), self._decode(prediction.label_ids))
            pad = self.tokenizer.pad_token_id
            lengths = np.count_nonzero((written != pad) & (written != IGNORE_INDEX), axis=-1)
            return {name: round(float(value), 4) for name, value in {**result, "gen_len": lengths.mean()}.items()}

        return {"compute_metrics": compute}

    def _decode(self, ids: np.ndarray) -> list[str]:
        ids = np.where(ids == IGNORE_INDEX, self.tokenizer.pad_token_id, ids)
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        pairs = self._iterate_pairs(Split(TEST, rows, ""))
        for (source, target), text in zip(pairs, self._decode(_get_generated_ids(output.predictions)), strict=True):
            reference = {self.target_name: target} if target is not None else {}
            yield {self.source_name: source, **reference, "prediction": text}

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Write the generated texts alone, one per line."""
        texts = self._decode(_get_generated_ids(output.predictions))
        lines = "".join(" ".join(text.splitlines()) + "\n" for text in texts)
        (directory / GENERATED_NAME).write_text(lines, encoding="utf-8")


def _get_generated_ids(predictions: Any) -> np.ndarray:
    return predictions[0] if isinstance(predictions, tuple) else predictions


def _count_positions(config: Any, side: str) -> int | None:
    """Return how many positions the encoder or the decoder has; None for models of relative positions."""
    own = getattr(config, side, None)  # of two models combined
    named = getattr(config, f"max_{side}_position_embeddings", None)  # as in LED
    return named or getattr(own or config, "max_position_embeddings", None)
