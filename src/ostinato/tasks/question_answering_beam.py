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
from .nbest import FoundAnswer, Spans, Window, add_probabilities, rank_candidates
from .question_answering import QuestionAnswering
from .rows import Split

_MASKED = 1.0  # in p_mask: a token that no answer starts or ends with


class QuestionAnsweringBeam(QuestionAnswering):
    """Recipe in which the answer is a span of the context, found by beam search."""

    name = "question-answering-beam"
    summary = "Answer questions by a span of a text, with XLNet's beam search over starts and ends."
    model_class = "XLNetForQuestionAnswering"
    always_pads = True  # otherwise p_mask would have to be padded by batch

    def build_extra_columns(self, windows: Windows, starts: Sequence[int] | None = None) -> dict[str, Any]:
        masks = []
        for is_context, cls_index in zip(windows.is_context, windows.cls_index, strict=True):
            mask = np.where(is_context, 0.0, _MASKED)
            mask[cls_index] = 0.0  # questions without an answer point at it
            masks.append(mask.tolist())
        columns: dict[str, Any] = {"cls_index": windows.cls_index, "p_mask": masks}
        if starts is not None:
            columns["is_impossible"] = [
                float(start == cls_index) for start, cls_index in zip(starts, windows.cls_index, strict=True)
            ]
        return columns

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        parts = super().get_trainer_arguments(splits, features)
        if self.arguments.version_2_with_negative:
            probability = _sigmoid(self.arguments.null_score_diff_threshold)
            parts["compute_metrics"] = metric("squad_v2", no_answer_threshold=probability)
        return {**parts, "preprocess_logits_for_metrics": None}

    def choose_answer(self, example: Mapping[str, Any], windows: Sequence[Window], predictions: Any) -> FoundAnswer:
        arguments, odds, spans = self.arguments, [], []
        for window in windows:
            *beams, null_logit = (part[window.number] for part in predictions[:5])
            spans.append(_collect_beam_spans(window, *beams, longest=arguments.max_answer_length))
            odds.append(float(null_logit))
        names = ("start_log_prob", "end_log_prob")
        candidates = rank_candidates(example["context"], spans, arguments.n_best_size, names)
        least = (
            min(odds) if arguments.version_2_with_negative else None
        )  # the window that is surest of an answer counts
        has_no_answer = not candidates or (least is not None and least > arguments.null_score_diff_threshold)
        text = "" if has_no_answer else candidates[0]["text"]
        return FoundAnswer(example["id"], text, add_probabilities(candidates), least)

    def format_answer(self, found: FoundAnswer) -> dict[str, Any]:
        if found.null_odds is None:
            return super().format_answer(found)
        best = found.n_best[0]["text"] if found.n_best else ""  # the metric itself decides when there is no answer
        return {"id": found.id, "prediction_text": best, "no_answer_probability": _sigmoid(found.null_odds)}


def _collect_beam_spans(
    window: Window,
    start_probabilities: np.ndarray,
    starts: np.ndarray,
    end_probabilities: np.ndarray,
    ends: np.ndarray,
    *,
    longest: int,
) -> Spans:
    """Return the candidates that a search has found: a few starts, and as many ends for each of them.

    The model returns ends as one row, the likeliest of every start first, then the second of every start, and so on.
    """
    per_start = len(ends) // len(starts)
    begin, end = np.repeat(starts, per_start), ends.reshape(per_start, len(starts)).T.ravel()
    first = np.repeat(_to_log_probabilities(start_probabilities), per_start)
    last = _to_log_probabilities(end_probabilities.reshape(per_start, len(starts)).T.ravel())
    return window.select_spans(begin, end, first, last, longest=longest)


def _to_log_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms: the model's log_probs are probabilities, and their sum would rank a sure start over all."""
    if (probabilities <= 0).all():
        return probabilities
    return np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))


def _sigmoid(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
