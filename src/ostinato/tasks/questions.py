"""Questions, their contexts and their answers: rows in all formats of SQuAD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ostinato import DataError
from ostinato.logging import get_logger

from .rows import TEST, TRAIN, VALIDATION, Split, read_splits
from .task_arguments import DataArguments, EncodingArguments, flag

_ANSWER_FORMAT = 'write {"text": ["..."], "answer_start": [12]}, with empty lists for a question without an answer'


@dataclass
class QuestionArguments(EncodingArguments):
    """The tokenization of texts, and the answers that are expected."""

    max_seq_length: int = flag(384, "The maximum length of question and context in tokens.")
    pad_to_max_length: bool = flag(
        True, "Pad every row to --max_seq_length. `false` is faster: it pads every batch to its longest row."
    )
    version_2_with_negative: bool = flag(False, "Some questions have no answer, as in SQuAD 2.0.")
    max_answer_length: int = flag(30, "The maximum length of an answer in tokens.")


class Answers(NamedTuple):
    """The answers to one question: their texts, and where in the context they begin."""

    texts: Sequence[str]
    starts: Sequence[Any]  # integers, once they are checked


def answers_of(value: Any) -> Answers:
    """Return a row's answers, which may be stored as columns or one by one, as in SQuAD's file.

    >>> answers_of({"text": ["Ulm", "in Ulm"], "answer_start": [9, 6]})
    Answers(texts=['Ulm', 'in Ulm'], starts=[9, 6])
    >>> answers_of([{"text": "Ulm", "answer_start": 9}])
    Answers(texts=['Ulm'], starts=[9])
    """
    if isinstance(value, Mapping):
        texts, starts = value["text"], value.get("answer_start")
        return Answers([texts], [starts]) if isinstance(texts, str) else Answers(texts, starts or [])
    return Answers([one["text"] for one in value], [one.get("answer_start") for one in value])


# ---- reading --------------------------------------------------------------------------------------------------------


def read_questions(arguments: DataArguments, wanted: Sequence[str]) -> dict[str, Split]:
    """Return rows with one question each. SQuAD's own files, by article and paragraph, are flattened."""
    limits = {name: f"max_{short}_samples" for name, short in _LIMITS.items()}
    everything = replace(arguments, **dict.fromkeys(limits.values(), None))
    splits = {}
    for name, split in read_splits(everything, wanted).items():
        if "paragraphs" in split.columns:
            rows = split.rows.map(_flatten_articles, batched=True, remove_columns=split.columns)
            split = replace(split, rows=rows, source=f"{split.source}, by question")
        split = split.take(getattr(arguments, limits[name]))
        if "id" not in split.columns:
            split = replace(split, rows=split.rows.add_column("id", [str(n) for n in range(len(split))]))
        splits[name] = split
    return splits


_LIMITS = {TRAIN: "train", VALIDATION: "eval", TEST: "predict"}


def _flatten_articles(articles: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the questions of some articles."""
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "title", "context", "question", "answers")}
    titles = articles.get("title") or [None] * len(articles["paragraphs"])
    for title, paragraphs in zip(titles, articles["paragraphs"], strict=True):
        for paragraph in paragraphs:
            for question in paragraph["qas"]:
                answers = answers_of(question.get("answers") or [])
                rows["id"].append(question["id"])
                rows["title"].append(title)
                rows["context"].append(paragraph["context"])
                rows["question"].append(question["question"])
                rows["answers"].append({"text": answers.texts, "answer_start": answers.starts})
    return rows


# ---- checking -------------------------------------------------------------------------------------------------------


def check_questions(
    splits: Mapping[str, Split], *, needs_starts: bool, allows_no_answer: bool, columns: Sequence[str]
) -> None:
    """Raise for rows that cannot be learned from or measured, naming file, column and row.

    `columns` are those of the question, the context and the answers. `needs_starts`: training needs the position of an
    answer in the context. `allows_no_answer`: questions without an answer are expected.
    """
    question, context, answers = columns
    for name, split in splits.items():
        split.require([question, context])
        split.check_texts(question, context)
        split.check_column(
            context, lambda text: bool(text.strip()), "the context is empty", "add the text, or remove the row"
        )
        if name != TRAIN:
            _check_ids(split)
        if name == TEST and answers not in split.columns:
            continue
        split.require([answers])
        silent = sum(
            1 for row in _iterate_answers(split, context, answers, needs_starts and name == TRAIN) if not row.texts
        )
        if silent and not allows_no_answer and name != TEST:
            get_logger().info(
                f"{silent:,} of {len(split):,} questions of {split.source} have no answer: "
                "add --version_2_with_negative to let the model leave a question unanswered"
            )


def _check_ids(split: Split) -> None:
    seen: dict[Any, int] = {}
    for row, name in enumerate(split.read_column("id")):
        first = seen.setdefault(name, row)
        if first != row:
            raise split.build_error(
                row,
                "id",
                f"row {first + 1} has this id too",
                "give every row an id of its own, or remove the column: rows are then numbered",
            )


def _iterate_answers(split: Split, context: str, column: str, needs_starts: bool) -> Iterator[Answers]:
    texts = split.read_column(context)
    for row, value in enumerate(split.read_column(column)):
        try:
            answers = answers_of(value)
            is_right = all(isinstance(text, str) for text in answers.texts)
        except (TypeError, KeyError):
            answers, is_right = Answers([], []), False
        if not is_right:
            raise split.build_error(row, column, "these are not answers", _ANSWER_FORMAT)
        if needs_starts:
            _check_answer_starts(split, row, column, texts[row], answers)
        yield answers


def _check_answer_starts(split: Split, row: int, column: str, context: str, answers: Answers) -> None:
    texts, starts = answers
    if len(texts) != len(starts):
        raise split.build_error(
            row, column, f"{len(texts)} texts and {len(starts)} positions (answer_start)", _ANSWER_FORMAT
        )
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(start, int):
            raise split.build_error(
                row, column, f"answer_start of {text!r} is {start!r}, not a number", _ANSWER_FORMAT
            )
        there = context[start : start + len(text)] if start >= 0 else ""
        if there == text:
            continue
        where = context.find(text)
        raise DataError(
            what=f"{split.source}, row {row + 1}, column {column!r}: {text!r} is not at character {start}",
            why=f"the text there is {there!r}"
            if there
            else f"the context has {len(context)} characters, which are counted from 0",
            fix=f"it is at {where}: correct answer_start"
            if where >= 0
            else "it is not in the context: correct the row, or remove it",
        )


def build_references(rows: Any, answers: str = "answers") -> list[dict[str, Any]] | None:
    """Return the references of answers in the form that SQuAD's metrics expect; None if rows do not have them."""
    if answers not in rows.column_names:
        return None
    given = [answers_of(value) for value in rows[answers]]
    return [
        {"id": name, "answers": {"text": list(one.texts), "answer_start": list(one.starts)}}
        for name, one in zip(rows["id"], given, strict=True)
    ]
