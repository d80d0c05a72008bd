"""Check a batch against what the heads of transformers' models expect, on the host.

Only classes of transformers itself are checked: in a user's model, any name or number may have another meaning. Even
these classes differ (DeBERTa accepts negative labels, and floats for classes). So before anything has failed, only
what no model accepts is a mistake: a label or a token beyond the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.errors import DataError, OutOfRangeError, TensorShapeError, TensorTypeError
from .context import FailureContext, format_dtype, is_integer

IGNORED = -100
Kind = Literal["rows", "tokens", "words", "translation", "choices"]

_KINDS: dict[str, Kind] = {
    "ForSequenceClassification": "rows",
    "ForImageClassification": "rows",
    "ForAudioClassification": "rows",
    "ForVideoClassification": "rows",
    "ForTokenClassification": "tokens",
    "ForCausalLM": "words",
    "LMHeadModel": "words",
    "ForMaskedLM": "words",
    "ForConditionalGeneration": "translation",
    "ForMultipleChoice": "choices",
}
_OTHER_MODALITIES = ("vision_config", "audio_config", "text_config")  # these may have tokens that are not words


@dataclass(frozen=True)
class Head:
    """What is predicted, and out of how many classes."""

    kind: Kind
    classes: int
    problem: str | None = None  # config.problem_type

    @property
    def takes_any_number(self) -> bool:
        """Return whether labels are not class numbers: a regression, or a number for each class."""
        other = self.problem not in (None, "single_label_classification")
        return self.kind == "rows" and (self.classes == 1 or other)

    @property
    def outcomes(self) -> str:
        """Return the classes as text, as in `has 3 classes, 0 to 2`."""
        if self.kind in ("words", "translation"):
            return f"predicts {self.classes} tokens, 0 to {self.classes - 1}"
        what = "choices" if self.kind == "choices" else "classes"
        return f"has {self.classes} {what}, 0 to {self.classes - 1}"

    def suggest_fix(self, highest: int) -> str:
        if self.kind in ("words", "translation"):
            return "use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))"
        if self.kind == "choices":
            return "set each label to the index of the correct choice, counted from 0"
        return f"load the model with num_labels={highest + 1} or more, or map the labels to 0..{self.classes - 1}"


def find_certain_mistake(context: FailureContext) -> DataError | None:
    """Return what cannot work, before it is tried: devices report it late and unclearly, or not at all."""
    found, subject = _check_tokens(context), _find_labels(context)
    if found is not None or subject is None:
        return found
    head, labels = subject
    if head.takes_any_number or labels.is_floating_point() or not bool((labels >= head.classes).any()):
        return None
    return _check_label_range(context, head, labels)


def find_mistake(context: FailureContext) -> DataError | None:
    """Return what is wrong with a batch that has failed; None if the model is not known well enough."""
    found, subject = _check_tokens(context), _find_labels(context)
    return found if found is not None or subject is None else _CHECKS[subject[0].kind](context, *subject)


def _find_labels(context: FailureContext) -> tuple[Head, Tensor] | None:
    """Return the head and its labels, if both are known."""
    head, labels = _find_head(context), context.columns.get("labels")
    if head is None or not context.own_loss or not isinstance(labels, Tensor):
        return None
    return None if labels.dim() == 0 or labels.dtype == torch.bool else (head, labels)


def _is_transformers_model(context: FailureContext) -> bool:
    return type(context.inner).__module__.startswith("transformers.")


# ---- what the model is ------------------------------------------------------------------------------------------


def _find_head(context: FailureContext) -> Head | None:
    kind: Kind | None = next((kind for suffix, kind in _KINDS.items() if context.name.endswith(suffix)), None)
    if kind is None or not _is_transformers_model(context):
        return None
    if kind in ("words", "translation"):
        classes = count_embeddings(context.inner, "get_output_embeddings") if _is_text_only(context) else None
    elif kind == "choices":
        ids = context.columns.get("input_ids")
        classes = ids.shape[1] if isinstance(ids, Tensor) and ids.dim() == 3 else None
    else:
        classes = getattr(context.config, "num_labels", None)
    if not isinstance(classes, int) or classes < 1:
        return None
    return Head(kind, classes, getattr(context.config, "problem_type", None))


def _is_text_only(context: FailureContext) -> bool:
    return all(getattr(context.config, name, None) is None for name in _OTHER_MODALITIES)


def count_embeddings(model: Any, getter: str) -> int | None:
    """Return the number of tokens in the embedding table that the method `getter` returns, if it is a plain one."""
    get = getattr(model, getter, None)
    try:
        weight = getattr(get() if callable(get) else None, "weight", None)
    except (AttributeError, NotImplementedError):
        return None
    return weight.shape[0] if isinstance(weight, Tensor) and weight.dim() == 2 else None


# ---- checks -------------------------------------------------------------------------------------------------------


def _check_tokens(context: FailureContext) -> OutOfRangeError | None:
    is_checked = _is_transformers_model(context) and _is_text_only(context)
    known = count_embeddings(context.inner, "get_input_embeddings") if is_checked else None
    for name in ("input_ids", "decoder_input_ids"):
        ids = context.columns.get(name)
        if known is not None and isinstance(ids, Tensor) and is_integer(ids):
            if bool(((ids < 0) | (ids >= known)).any()):
                return build_token_range_error(context, name, ids, known)
    return None


def build_token_range_error(context: FailureContext, name: str, ids: Tensor, known: int) -> OutOfRangeError:
    """Return the error for tokens beyond the embedding table."""
    wrong, rows = _find_wrong(ids, (ids < 0) | (ids >= known))
    return OutOfRangeError(
        what=f"token {wrong} in column {name!r} is out of range: {context.name} has {known} tokens, 0 to {known - 1}",
        why=f"it is in {context.describe_rows(rows)}",
        fix="use -100 in labels only; pad input_ids with the tokenizer's pad_token_id"
        if wrong == IGNORED
        else "use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))",
    )


def _check_row_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    if head.classes == 1 or head.problem == "regression":
        return None
    if head.problem == "multi_label_classification" or (head.problem is None and labels.is_floating_point()):
        return _check_multi_labels(context, head, labels)
    if head.problem not in (None, "single_label_classification"):
        return None
    if labels.is_floating_point():
        return TensorTypeError(
            what=f"labels are floats ({format_dtype(labels)}), and must be class indices",
            why=f"problem_type='single_label_classification': one of {head.classes} classes per row",
            fix="convert them to integers; for a regression, load the model with num_labels=1",
        )
    rows = _count_rows(context)
    if rows is not None and labels.numel() != rows:
        return _build_row_count_error(context, head, labels)
    return _check_label_range(context, head, labels)


def _check_multi_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    """Check labels of several classes per row: one float per class."""
    rows, example = _count_rows(context), f"[1.0, {', '.join(['0.0'] * (min(head.classes, 3) - 1))}]"
    if not labels.is_floating_point():
        if labels.dim() != 2:
            return _build_label_shape_error(context, head, labels, example)
        return TensorTypeError(
            what=f"labels are integers ({format_dtype(labels)}), and must be floats",
            why="problem_type='multi_label_classification' compares each class with 0.0 or 1.0",
            fix=f"convert them to floats, for instance {example}",
        )
    if rows is None or tuple(labels.shape) == (rows, head.classes):
        return None
    if labels.numel() == rows:  # without a problem_type, the model infers one from the floats
        return TensorTypeError(
            what=f"labels are floats ({format_dtype(labels)}), and {context.name} has {head.classes} classes",
            why="one float per row is a regression, which has one output; a class is an integer",
            fix="convert the labels to integers, or load the model with num_labels=1 for a regression",
        )
    return _build_label_shape_error(context, head, labels, example)


def _build_label_shape_error(context: FailureContext, head: Head, labels: Tensor, example: str) -> TensorShapeError:
    return TensorShapeError(
        what=f"labels have shape {tuple(labels.shape)}, and {context.name} computes {head.classes} logits per row",
        why="problem_type='multi_label_classification' compares each logit with its own label",
        fix=f"use {head.classes} floats per row, for instance {example}",
    )


def _build_row_count_error(context: FailureContext, head: Head, labels: Tensor) -> TensorShapeError:
    ids = context.columns.get("input_ids")
    per_token = isinstance(ids, Tensor) and ids.shape == labels.shape
    one_hot = not per_token and labels.dim() == 2 and labels.shape[1] == head.classes
    other = context.name.replace("SequenceClassification", "TokenClassification")
    return TensorShapeError(
        what=f"labels have shape {tuple(labels.shape)}, and {context.name} predicts one of {head.classes} classes "
        "per row",
        why=f"the batch has {_count_rows(context)} rows and {labels.numel()} labels",
        fix=f"use {other} for one label per token"
        if per_token
        else "use the index of the class, or floats with problem_type='multi_label_classification'"
        if one_hot
        else "use one integer per row",
    )


def _check_token_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    ids = context.columns.get("input_ids")
    if isinstance(ids, Tensor) and ids.dim() == 2 and labels.shape != ids.shape:
        return TensorShapeError(
            what=f"labels have shape {tuple(labels.shape)}, input_ids {tuple(ids.shape)}: "
            f"{context.name} expects one label per token",
            why="there is one label per row"
            if labels.dim() == 1
            else "they may be labels of words instead of tokens, or not padded",
            fix="use a SequenceClassification model for one label per row"
            if labels.dim() == 1
            else "align them with word_ids(), -100 for special tokens; DataCollatorForTokenClassification pads them",
        )
    return _check_integer_labels(context, labels) or _check_label_range(context, head, labels)


def _check_word_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    ids = context.columns.get("input_ids")
    predicts_some_positions = "target_mapping" in context.columns  # XLNet predicts some positions only
    if isinstance(ids, Tensor) and ids.dim() == 2 and labels.shape != ids.shape and not predicts_some_positions:
        return TensorShapeError(
            what=f"labels have shape {tuple(labels.shape)}, input_ids {tuple(ids.shape)}: "
            f"{context.name} expects one label per token",
            why="labels are compared with the prediction at each position of input_ids",
            fix="make labels a copy of input_ids, with -100 at positions to ignore; the model shifts them",
        )
    return _check_integer_labels(context, labels) or _check_label_range(context, head, labels)


def _check_choice_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    if labels.is_floating_point():  # they may be probabilities
        return None
    return _check_label_range(context, head, labels)


def _check_translation_labels(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    return _check_integer_labels(context, labels) or _check_label_range(context, head, labels)


def _check_integer_labels(context: FailureContext, labels: Tensor) -> TensorTypeError | None:
    if not labels.is_floating_point():
        return None
    return TensorTypeError(
        what=f"labels are floats ({format_dtype(labels)}), and must be class indices",
        why=f"{context.name} predicts one of several classes at every position",
        fix="convert them to integers",
    )


def _check_label_range(context: FailureContext, head: Head, labels: Tensor) -> OutOfRangeError | None:
    wrong = (labels != IGNORED) & ((labels < 0) | (labels >= head.classes))
    if not bool(wrong.any()):
        return None
    valid = labels[labels != IGNORED]
    fix = head.suggest_fix(int(valid.max()))
    if head.kind in ("rows", "tokens") and int(valid.min()) == 1:
        fix += " (subtract 1 if they start at 1)"
    return build_label_range_error(context, "labels", labels, wrong, head.outcomes, fix)


def build_label_range_error(
    context: FailureContext, name: str, labels: Tensor, wrong: Tensor, outcomes: str, fix: str
) -> OutOfRangeError:
    """Return the error for labels that are not classes of the model."""
    value, rows = _find_wrong(labels, wrong)
    valid = labels[labels != IGNORED]
    if value < 0:
        fix = f"use {IGNORED} for labels to ignore, and count classes from 0"
    return OutOfRangeError(
        what=f"label {value} in column {name!r} is out of range: {context.name} {outcomes}",
        why=f"it is in {context.describe_rows(rows)}; the labels of this batch range from {int(valid.min())} to "
        f"{int(valid.max())}",
        fix=fix,
    )


def _find_wrong(values: Tensor, wrong: Tensor) -> tuple[int, list[int]]:
    """Return the first wrong value, and the rows of the batch that have one."""
    rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().tolist()
    return int(values[wrong][0]), rows


def _count_rows(context: FailureContext) -> int | None:
    """Return the number of rows in the batch, by the main input."""
    main: Any = context.columns.get(getattr(context.inner, "main_input_name", "input_ids"))
    return main.shape[0] if isinstance(main, Tensor) and main.dim() > 0 else None


_CHECKS = {
    "rows": _check_row_labels,
    "tokens": _check_token_labels,
    "words": _check_word_labels,
    "translation": _check_translation_labels,
    "choices": _check_choice_labels,
}
