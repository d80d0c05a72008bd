"""Answers to questions: SQuAD's exact match and F1 over words, and the same over token positions.

`squad` and `squad_v2` compare texts, after SQuAD's normalisation (lower case, no punctuation, no articles, single
spaces), and give percentages, as the official scripts do. `answer_span` compares the positions a model with start and
end logits points at, so it needs no post-processing; it gives shares of 1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MetricError
from .base import Arrays, Measured, Metric
from .inputs import check_same_length, find_counted, read_array, read_class_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Squad(Metric):
    """SQuAD 1.1: exact match and F1 against the best of the reference answers, in percent. Keeps three numbers.

    Predictions are texts, or `{"id": …, "prediction_text": …}`; references are a text, a list of texts, or
    `{"id": …, "answers": {"text": […]}}` per row. With ids, rows are paired by them.

    >>> Squad()((["the Eiffel Tower"], [["Eiffel Tower!", "tower"]]))
    {'exact_match': 100.0, 'f1': 100.0}
    """

    default_name = "squad"

    def _list_names(self) -> tuple[str, ...]:
        return ("exact_match", "f1")

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses, truths = pair_answers(predictions, references, self.name)
        exact, f1 = [], []
        for guess, answers in zip(guesses, truths, strict=True):
            answer = get_answer_text(guess, self.name)
            exact.append(max(float(normalize_answer(answer) == normalize_answer(truth)) for truth in answers or [""]))
            f1.append(max(compute_word_f1(answer, truth) for truth in answers or [""]))
        rows = len(guesses)
        return Measured(rows, np.arange(rows), {"exact": np.array(exact), "f1": np.array(f1), "rows": np.ones(rows)})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {
            "exact_match": float(100 * totals["exact"] / totals["rows"]),
            "f1": float(100 * totals["f1"] / totals["rows"]),
        }


class SquadV2(Metric):
    """SQuAD 2.0, where a question may have no answer (predict ""), in percent, under the official names.

    Predictions may carry a `no_answer_probability`; then the best threshold for it is given too (`best_exact`,
    `best_exact_thresh`, `best_f1`, `best_f1_thresh`). That needs every row: 26 bytes each are kept.

    Args:
        no_answer_threshold: a probability above it counts as "no answer".

    >>> scores = SquadV2()((["in Paris", ""], [["Paris"], []]))
    >>> scores["exact"], scores["HasAns_f1"], scores["NoAns_f1"]
    (50.0, 66.66666666666666, 100.0)
    """

    default_name = "squad_v2"
    keeps_rows = True

    def __init__(self, *, no_answer_threshold: float = 1.0, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.no_answer_threshold = no_answer_threshold

    def _list_names(self) -> tuple[str, ...]:
        return ("exact", "f1")

    @property
    def names_more(self) -> bool:
        """Whether results have further names: `HasAns_exact`, `NoAns_exact`, … where there are such rows."""
        return True

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses, truths = pair_answers(predictions, references, self.name)
        exact, f1, answerable, answered, silence = [], [], [], [], []
        for guess, answers in zip(guesses, truths, strict=True):
            answer, golden = get_answer_text(guess, self.name), [text for text in answers if normalize_answer(text)]
            exact.append(max(float(normalize_answer(answer) == normalize_answer(truth)) for truth in golden or [""]))
            f1.append(max(compute_word_f1(answer, truth, empty_is_equal=True) for truth in golden or [""]))
            answerable.append(bool(answers))
            answered.append(bool(answer))
            silence.append(guess.get("no_answer_probability", np.nan) if isinstance(guess, Mapping) else np.nan)
        values = {"exact": np.array(exact, dtype=np.float64), "f1": np.array(f1, dtype=np.float64)}
        values |= {"answerable": np.array(answerable, dtype=bool), "answered": np.array(answered, dtype=bool)}
        values["silence"] = np.array(silence, dtype=np.float64)
        return Measured(len(guesses), np.arange(len(guesses)), values)

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        return values if weights is None else {name: np.repeat(one, weights, axis=0) for name, one in values.items()}

    def _score(self, totals: Arrays) -> dict[str, float]:
        answerable = totals["answerable"].astype(bool)
        silent = totals["silence"] > self.no_answer_threshold  # NaN, where none was given, is never above
        parts = {"": np.ones(len(answerable), dtype=bool), "HasAns_": answerable, "NoAns_": ~answerable}
        result: dict[str, float] = {}
        for prefix, part in parts.items():
            if part.any():
                for name in ("exact", "f1"):
                    scores = np.where(silent, ~answerable, totals[name])
                    result[f"{prefix}{name}"] = float(100 * scores[part].mean())
                result[f"{prefix}total"] = int(part.sum())
        return {**result, **_find_best_thresholds(totals, answerable)}


def _find_best_thresholds(totals: Arrays, answerable: np.ndarray) -> dict[str, float]:
    """Return what the best threshold on the no-answer probability would have given."""
    if np.isnan(totals["silence"]).any():
        return {}
    order = np.argsort(totals["silence"], kind="stable")
    result = {}
    for name in ("exact", "f1"):
        gain = np.where(answerable, totals[name], -totals["answered"].astype(np.float64))[order]
        scores = np.concatenate([[0.0], np.cumsum(gain)]) + (~answerable).sum()
        best = int(scores.argmax())
        result[f"best_{name}"] = float(100 * scores[best] / len(order))
        result[f"best_{name}_thresh"] = float(totals["silence"][order][best - 1]) if best else 0.0
    return result


class AnswerSpan(Metric):
    """Whether start and end logits point at the right tokens: exact match and F1 over tokens. Keeps three numbers.

    Predictions are `(start_logits, end_logits)`, each `(rows, tokens)`; labels `(start_positions, end_positions)`. The
    best span that does not end before it starts is taken. Rows whose answer lies outside the tokens are left out,
    as the models' own loss leaves them out. To score texts, turn spans into texts and use `squad`.

    >>> starts, ends = np.array([[0.0, 9.0, 0.0]]), np.array([[0.0, 1.0, 9.0]])
    >>> AnswerSpan()(((starts, ends), (np.array([1]), np.array([1]))))
    {'span_exact_match': 0.0, 'span_f1': 0.6666666666666666}
    """

    default_name = "answer_span"

    def _list_names(self) -> tuple[str, ...]:
        return ("span_exact_match", "span_f1")

    def _measure(self, predictions: Any, references: Any) -> Measured:
        starts, ends = self._split_pair(predictions, "predictions", "start and end logits")
        first, last = (
            read_class_labels(part, self.name)
            for part in self._split_pair(references, "labels", "start and end positions")
        )
        starts, ends = read_array(starts, self.name, "start logits"), read_array(ends, self.name, "end logits")
        if starts.shape != ends.shape or starts.ndim != 2 or not len(starts) == len(first) == len(last):
            raise MetricError(
                what=f"{self.name}: logits {starts.shape} and {ends.shape}, positions {first.shape} and {last.shape}",
                why="it takes two tables (rows, tokens) and two columns of positions (rows,)",
                fix="pass start_logits and end_logits, and set label_names=['start_positions', 'end_positions']",
            )
        inside = find_counted(first, self.ignore_index) & find_counted(last, self.ignore_index)
        inside &= (first >= 0) & (last < starts.shape[1]) & (first < starts.shape[1])
        row = np.flatnonzero(inside)
        begin, end = find_best_spans(starts[row], ends[row])
        overlap = np.minimum(end, last[row]) - np.maximum(begin, first[row]) + 1
        both = (end - begin + 1) + (last[row] - first[row] + 1)
        values = {"exact": (begin == first[row]) & (end == last[row]), "f1": 2 * np.maximum(overlap, 0) / both}
        return Measured(len(first), row, {**values, "rows": np.ones(len(row), dtype=np.int8)})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {
            "span_exact_match": float(totals["exact"] / totals["rows"]),
            "span_f1": float(totals["f1"] / totals["rows"]),
        }

    def _split_pair(self, given: Any, role: str, what: str) -> tuple[Any, Any]:
        if not isinstance(given, (tuple, list)) or len(given) < 2:
            raise MetricError(
                what=f"{self.name}: the {role} are one {type(given).__name__}",
                why=f"it takes a pair of {what}",
                fix="set label_names=['start_positions', 'end_positions'] in the training arguments",
            )
        return given[0], given[1]


# ------------------------------------------------------------------------------------------------------------- shared


def normalize_answer(text: str) -> str:
    """Normalize a text as SQuAD does: lower case, no punctuation, no articles, single spaces.

    >>> normalize_answer("The  Cat's mat.")
    'cats mat'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def compute_word_f1(guess: str, truth: str, *, empty_is_equal: bool = False) -> float:
    """Return F1 over words. SQuAD 2.0 (`empty_is_equal`) lets two empty answers agree; 1.1 does not.

    >>> compute_word_f1("in Paris", "Paris")
    0.6666666666666666
    """
    said, true = normalize_answer(guess).split(), normalize_answer(truth).split()
    if empty_is_equal and not (said and true):
        return float(said == true)
    common = sum((Counter(said) & Counter(true)).values())
    return 2 * common / (len(said) + len(true)) if common else 0.0


def get_answer_text(guess: Any, name: str) -> str:
    """Return the text of a prediction: itself, or its `prediction_text`.

    >>> get_answer_text({"id": "7", "prediction_text": "Paris"}, "squad")
    'Paris'
    """
    text = guess.get("prediction_text") if isinstance(guess, Mapping) else guess
    if not isinstance(text, str):
        raise MetricError(
            what=f"{name} got {type(guess).__name__} as an answer",
            why="it compares texts; logits and positions must be turned into texts first",
            fix="pass texts or {'prediction_text': …}; for start and end logits use metric('answer_span')",
        )
    return text


def list_answer_texts(reference: Any, name: str) -> list[str]:
    """Return the reference answers of a row in any of SQuAD's forms.

    >>> list_answer_texts({"id": "7", "answers": {"text": ["Paris"], "answer_start": [3]}}, "squad")
    ['Paris']
    """
    if isinstance(reference, Mapping):
        inner = reference.get("answers", reference.get("text"))
        return list_answer_texts(inner, name)
    if isinstance(reference, str):
        return [reference]
    if isinstance(reference, Sequence):
        return [text for part in reference for text in list_answer_texts(part, name)]
    raise MetricError(
        what=f"{name} got {type(reference).__name__} as a reference",
        why="references are a text, a list of texts, or {'answers': {'text': […]}}",
        fix="pass the data set's 'answers' column",
    )


def pair_answers(predictions: Any, references: Any, name: str) -> tuple[list[Any], list[list[str]]]:
    """Pair predictions with answers: by id where both have one, else in order.

    >>> pair_answers(["Paris"], [{"text": ["Paris", "in Paris"]}], "squad")
    (['Paris'], [['Paris', 'in Paris']])
    """
    if isinstance(predictions, (str, Mapping)) or isinstance(references, (str, Mapping)):
        raise MetricError(
            f"{name} got a single row", "a batch is a list of rows", "pass lists: [prediction], [reference]"
        )
    predictions, references = list(predictions), list(references)
    check_same_length(predictions, references, name)
    if all(isinstance(row, Mapping) and "id" in row for row in [*predictions, *references]):
        by_id = {row["id"]: row for row in references}
        missing = [row["id"] for row in predictions if row["id"] not in by_id]
        if missing:
            raise MetricError(
                what=f"{name}: no reference has the id {missing[0]!r}",
                why=f"{len(missing)} of {len(predictions)} predictions have an id of their own",
                fix="pass the references of the same rows",
            )
        references = [by_id[row["id"]] for row in predictions]
    return predictions, [list_answer_texts(reference, name) for reference in references]


def find_best_spans(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return first and last token of the span with the highest sum of logits that does not end before it starts.

    >>> find_best_spans(np.array([[0.0, 5.0, 1.0]]), np.array([[9.0, 1.0, 2.0]]))
    (array([0]), array([0]))
    """
    end = (np.maximum.accumulate(starts, axis=1) + ends).argmax(axis=1)
    before = np.arange(starts.shape[1])[None] <= end[:, None]
    return np.where(before, starts, -np.inf).argmax(axis=1), end
