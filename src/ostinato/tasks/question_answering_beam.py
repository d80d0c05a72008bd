"""Question answering by beam search: the likeliest starts first, then for each of them the likeliest ends.

transformers has such a head for XLNet (`start_n_top`, `end_n_top` of its config). It also predicts for a whole window
whether the question can be answered, so the lack of an answer has a score of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.metrics import metric

from .context_windows import Windows
from .nbest import Found, Spans, Window, ranked, with_probabilities
from .question_answering import QuestionAnswering
from .rows import Split

_OUTSIDE = 1.0  # in p_mask: a token that no answer starts or ends with


class QuestionAnsweringBeam(QuestionAnswering):
    """Recipe in which the answer is a span of the context, found by beam search."""

    name = "question-answering-beam"
    summary = "Answer questions by a span of a text, with XLNet's beam search over starts and ends."
    model_class = "XLNetForQuestionAnswering"
    always_pads = True  # otherwise p_mask would have to be padded by batch

    def more(self, windows: Windows, starts: Sequence[int] | None = None) -> dict[str, Any]:
        masks = []
        for inside, rest in zip(windows.inside, windows.rest, strict=True):
            mask = np.where(inside, 0.0, _OUTSIDE)
            mask[rest] = 0.0  # questions without an answer point at it
            masks.append(mask.tolist())
        columns: dict[str, Any] = {"cls_index": windows.rest, "p_mask": masks}
        if starts is not None:
            columns["is_impossible"] = [float(start == rest) for start, rest in zip(starts, windows.rest, strict=True)]
        return columns

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        parts = super().get_trainer_arguments(splits, features)
        if self.arguments.version_2_with_negative:
            chance = _chance(self.arguments.null_score_diff_threshold)
            parts["compute_metrics"] = metric("squad_v2", no_answer_threshold=chance)
        return {**parts, "preprocess_logits_for_metrics": None}

    def choose(self, example: Mapping[str, Any], windows: Sequence[Window], predictions: Any) -> Found:
        asked, odds, spans = self.arguments, [], []
        for window in windows:
            *beams, silence = (part[window.number] for part in predictions[:5])
            spans.append(_searched(window, *beams, longest=asked.max_answer_length))
            odds.append(float(silence))
        names = ("start_log_prob", "end_log_prob")
        candidates = ranked(example["context"], spans, asked.n_best_size, names)
        least = min(odds) if asked.version_2_with_negative else None  # the window that is surest of an answer counts
        is_silent = not candidates or (least is not None and least > asked.null_score_diff_threshold)
        text = "" if is_silent else candidates[0]["text"]
        return Found(example["id"], text, with_probabilities(candidates), least)

    def told(self, found: Found) -> dict[str, Any]:
        if found.null_odds is None:
            return super().told(found)
        best = found.n_best[0]["text"] if found.n_best else ""  # the metric itself decides when there is no answer
        return {"id": found.id, "prediction_text": best, "no_answer_probability": _chance(found.null_odds)}


def _searched(
    window: Window,
    start_chances: np.ndarray,
    starts: np.ndarray,
    end_chances: np.ndarray,
    ends: np.ndarray,
    *,
    longest: int,
) -> Spans:
    """Return the candidates that a search has found: a few starts, and as many ends for each of them.

    The model returns ends as one row, the likeliest of every start first, then the second of every start, and so on.
    """
    per_start = len(ends) // len(starts)
    begin, end = np.repeat(starts, per_start), ends.reshape(per_start, len(starts)).T.ravel()
    first = np.repeat(_logs(start_chances), per_start)
    last = _logs(end_chances.reshape(per_start, len(starts)).T.ravel())
    return window.spans(begin, end, first, last, longest=longest)


def _logs(chances: np.ndarray) -> np.ndarray:
    """Return logarithms: the model's log_probs are probabilities, and their sum would rank a sure start over all."""
    if (chances <= 0).all():
        return chances
    return np.log(np.maximum(chances, np.finfo(np.float32).tiny))


def _chance(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
