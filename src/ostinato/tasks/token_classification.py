"""Token classification: a tag for every word, such as the kind of name it is part of, or its part of speech."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError, DataCollatorForTokenClassification, DataError
from ostinato.logging import get_logger
from ostinato.metrics import lenient_entities, metric

from .label_names import Labels
from .max_length import CUT_COLUMN, choose_padding, compute_row_limit, get_tokenizer_limit, report_truncation
from .recipe import Columns, Recipe
from .rows import TEST, Split, format_names
from .task_arguments import TextArguments, flag

# Their pieces begin with the space before a word, which single words have only if the tokenizer adds it.
BYTE_LEVEL = {"bart", "bloom", "deberta", "gpt2", "led", "longformer", "roberta"}
NO_LABEL = -100
UNKNOWN_TAG = "O"  # in predictions.txt, for words that the model has not seen


@dataclass
class TokenClassificationArguments(TextArguments):
    """Words and tags."""

    max_seq_length: int | None = flag(None, "The maximum length of a row in tokens. By default the model's maximum.")
    task_name: str = flag("ner", "Decides the column of tags: ner_tags, pos_tags, chunk_tags.")
    text_column_name: str | None = flag(None, "The column with the list of words, if not 'tokens'.")
    label_column_name: str | None = flag(None, "The column with the list of tags, if not that of --task_name.")
    label_all_tokens: bool = flag(
        False,
        "Label every piece of a word, with I- in place of B- from the second on. By default only its first piece.",
    )
    return_entity_level_metrics: bool = flag(False, "Measure every type of entity separately as well.")

    def __post_init__(self) -> None:
        self.task_name = self.task_name.lower()


class TokenClassification(Recipe):
    """Recipe that predicts a tag for every word of every row."""

    name = "token-classification"
    summary = "Tag every word: names of people and places (ner), parts of speech (pos), phrases (chunk)."
    model_class = "AutoModelForTokenClassification"
    arguments_class = TokenClassificationArguments

    word_column: str  # the column
    tag_column: str
    labels: Labels = Labels((), ())  # those of the model, if rows have none
    test_has_tags: bool = False
    limit: int | None = None

    # ---- rows ------------------------------------------------------------------------------------------------

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        self.word_column, self.tag_column = self._find_columns(next(iter(splits.values())))
        tagged = []
        for split in splits.values():
            if split.columns == ["text"]:
                raise DataError(f"{split.source} holds lines of text", "a row has a list of words", _FIX_TEXT_FILE)
            split.require([self.word_column], {self.word_column: "--text_column_name"})
            split.check_column(
                self.word_column, _is_word_list, "this is not a list of words", _FIX_LISTS.format(self.word_column)
            )
            if split.name.startswith(TEST) and not self._has_tags(split):
                continue
            self._check_tags(split)
            tagged.append(split)
            self.test_has_tags |= split.name.startswith(TEST)
        if tagged:
            self.labels = replace(Labels.from_splits(tagged, self.tag_column), is_multilabel=False)
            kinds = f", one of {len(self.labels.names)}: {format_names(self.labels.names)}"
        get_logger().info(f"reads {self.word_column}; predicts {self.tag_column}{kinds if tagged else ''}")

    def _find_columns(self, split: Split) -> tuple[str, str]:
        arguments, columns = self.arguments, split.columns
        pair = columns if len(columns) == 2 else ()
        words = next((name for name in ("tokens", "words", *pair[:1]) if name in columns), "tokens")
        usual = f"{arguments.task_name}_tags"
        tags = next((name for name in (usual, "tags", "labels", *pair[1:]) if name in columns), usual)
        return arguments.text_column_name or words, arguments.label_column_name or tags

    def _has_tags(self, split: Split) -> bool:
        """Return whether rows for prediction have tags; some datasets have none there, or -1."""
        if self.tag_column not in split.columns:
            return False
        return not any(tags is None or None in tags or -1 in tags for tags in split.read_column(self.tag_column))

    def _check_tags(self, split: Split) -> None:
        split.require([self.tag_column], {self.tag_column: "--label_column_name"})
        split.check_column(self.tag_column, _is_list, "this is not a list of tags", _FIX_LISTS.format(self.tag_column))
        pairs = zip(split.read_column(self.word_column), split.read_column(self.tag_column), strict=True)
        for row, (words, tags) in enumerate(pairs):
            if len(words) != len(tags):
                raise split.build_error(
                    row,
                    self.tag_column,
                    f"{len(tags)} tags for the {len(words)} words of {self.word_column!r}",
                    "give every word one tag",
                )

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (word for words in rows[self.word_column] for word in words)

    # ---- model -----------------------------------------------------------------------------------------------

    def get_tokenizer_arguments(self) -> dict[str, Any]:
        return {"add_prefix_space": True} if self.config.model_type in BYTE_LEVEL else {}

    def prepare_config(self, config: Any) -> None:
        if not self.tokenizer.is_fast:
            raise ConfigError(
                what=f"{type(self.tokenizer).__name__} does not return the word of a piece",
                why="tags of words are aligned with their pieces, which needs a fast tokenizer",
                fix="use a model with a fast tokenizer, or train one: --train_tokenizer",
            )
        own = Labels.from_config(config)
        self.labels = self.labels.match_model(config) if self.labels.names else own
        unknown = [name for name in self.labels.names if name not in own.names]
        if unknown and not self.training.do_train and not all(name.startswith("LABEL_") for name in own.names):
            raise ConfigError(
                what=f"the model does not know the tags {format_names(unknown)} of column {self.tag_column!r}",
                why=f"it was trained for {format_names(own.names, 20)}",
                fix="evaluate with rows that have these tags, or train the model for others: --do_train",
            )
        self.labels.write_config(config)
        self.limit = compute_row_limit(self.arguments.max_seq_length, get_tokenizer_limit(self.tokenizer), config)

    # ---- features --------------------------------------------------------------------------------------------

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        features = self._tokenize_words(rows[self.word_column], padded=self.arguments.pad_to_max_length)
        is_known = split != TEST or self.test_has_tags
        # Without tags, zeros mark the positions of words.
        tags = (
            map(self.labels.encode, rows[self.tag_column])
            if is_known
            else ([0] * len(w) for w in rows[self.word_column])
        )
        words_of = [features.word_ids(row) for row in range(len(rows[self.word_column]))]
        features["labels"] = [self._align_labels(ids, words) for ids, words in zip(tags, words_of, strict=True)]
        features[CUT_COLUMN] = [
            len(words) - len({*seen} - {None}) if encoding.overflowing else 0
            for words, seen, encoding in zip(rows[self.word_column], words_of, features.encodings, strict=True)
        ]
        return features

    def _tokenize_words(self, words: Sequence[Sequence[str]], *, padded: bool) -> Any:
        return self.tokenizer(
            words,
            is_split_into_words=True,
            padding=choose_padding(self.limit, is_wanted=padded),
            truncation=self.limit is not None,
            max_length=self.limit,
        )

    def _align_labels(self, ids: Sequence[int], words: Sequence[int | None]) -> list[int]:
        """Return the tags of words as labels of their pieces."""
        return [
            NO_LABEL if word is None else ids[word] if word != before else self._get_continuation_label(ids[word])
            for word, before in zip(words, [None, *words], strict=False)
        ]

    def _get_continuation_label(self, tag: int) -> int:
        """Return the label of a word's second piece and those after it."""
        if not self.arguments.label_all_tokens:
            return NO_LABEL
        names = self.labels.names
        inside = f"I-{names[tag][2:]}"
        return names.index(inside) if names[tag].startswith("B-") and inside in names else tag

    def transform_features(self, features: Any, split: str, encode: Any) -> Any:
        return report_truncation(features, split, self.limit, "words")

    def build_collator(self, model: Any) -> Any:
        return DataCollatorForTokenClassification(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        if not any(_is_entity_tag(tag) for tag in self.labels.names):
            return {"compute_metrics": metric("accuracy")}
        by_type = self.arguments.return_entity_level_metrics
        return {"compute_metrics": metric("seqeval", label_names=self.labels.names, by_type=by_type)}

    # ---- results ---------------------------------------------------------------------------------------------

    def predict(self, trainer: Any, features: Any, rows: Any) -> Any:
        output = super().predict(trainer, features, rows)
        if self.test_has_tags:
            return output
        times = {name: value for name, value in output.metrics.items() if name.endswith(("_runtime", "_per_second"))}
        return output._replace(metrics=times)  # the other metrics compare with zeros

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        for row, tags in zip(rows, self._iterate_word_tags(output, rows), strict=True):
            words = row[self.word_column]
            found = lenient_entities([tag or UNKNOWN_TAG for tag in tags]) if any(map(_is_entity_tag, tags)) else []
            entities = [
                {"type": kind, "text": " ".join(words[first : last + 1]), "first": first, "last": last}
                for kind, first, last in found
            ]
            yield {self.word_column: words, "prediction": tags, "entities": entities}

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        with (directory / "predictions.txt").open("w", encoding="utf-8") as file:
            for tags in self._iterate_word_tags(output, rows):
                file.write(" ".join(tag or UNKNOWN_TAG for tag in tags) + "\n")

    def _iterate_word_tags(self, output: Any, rows: Any) -> Iterator[list[str | None]]:
        """Yield a tag for every word; None for words that were cut off or have no tokens."""
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        for row, scores, labels in zip(rows, logits, output.label_ids, strict=True):
            words = row[self.word_column]
            seen = [word for word in self._tokenize_words([words], padded=False).word_ids(0) if word is not None]
            if not self.arguments.label_all_tokens:
                seen = list(dict.fromkeys(seen))
            tags: list[str | None] = [None] * len(words)
            chosen = np.asarray(scores)[np.asarray(labels) != NO_LABEL].argmax(-1)
            for word, tag in zip(reversed(seen), reversed(chosen), strict=True):  # the first piece decides
                tags[word] = self.labels.names[int(tag)]
            yield tags


_FIX_TEXT_FILE = 'write every sentence as a line of JSON: {"tokens": ["Anna", "left"], "ner_tags": ["B-PER", "O"]}'
_FIX_LISTS = 'write rows as lines of JSON, with lists: {{"{}": ["…", "…"]}}'


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_word_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _is_entity_tag(tag: str | None) -> bool:
    return tag is not None and len(tag) > 2 and tag[1] == "-" and tag[0] in "BIESLU"
