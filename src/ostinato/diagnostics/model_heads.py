"""Check a batch against what the heads of transformers' models expect, on the host.

Only classes of transformers itself are judged: a model of one's own may mean something else by any name or number.
Even among these some take what others refuse (DeBERTa: negative labels, floats for classes). So before anything has
failed, only what no model can take is a mistake: a label or a token beyond the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.errors import DataError, OutOfRangeError, TensorShapeError, TensorTypeError
from .context import FailureContext, is_integer, kind_of

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
_OTHER_SENSES = ("vision_config", "audio_config", "text_config")  # their tokens may stand for more than words


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

    def fix(self, highest: int) -> str:
        if self.kind in ("words", "translation"):
            return "use the tokenizer the model was made for, or call model.resize_token_embeddings(len(tokenizer))"
        if self.kind == "choices":
            return "labels say which of the choices is right, counted from 0"
        return f"load the model with num_labels={highest + 1} or more, or map the labels to 0..{self.classes - 1}"


def find_certain_mistake(context: FailureContext) -> DataError | None:
    """Return what cannot work before it is tried: devices report it late and unclearly, or not at all."""
    found, subject = _tokens_out_of_range(context), _labels_of(context)
    if found is not None or subject is None:
        return found
    head, labels = subject
    if head.takes_any_number or labels.is_floating_point() or not bool((labels >= head.classes).any()):
        return None
    return _range(context, head, labels)


def find_mistake(context: FailureContext) -> DataError | None:
    """Return what is wrong with a batch that has failed; None if the model is not known well enough."""
    found, subject = _tokens_out_of_range(context), _labels_of(context)
    return found if found is not None or subject is None else _CHECKS[subject[0].kind](context, *subject)


def _labels_of(context: FailureContext) -> tuple[Head, Tensor] | None:
    """Return the head and the labels it is given, if both are known."""
    head, labels = _head_of(context), context.columns.get("labels")
    if head is None or not context.own_loss or not isinstance(labels, Tensor):
        return None
    return None if labels.dim() == 0 or labels.dtype == torch.bool else (head, labels)


def _is_of_transformers(context: FailureContext) -> bool:
    return type(context.inner).__module__.startswith("transformers.")


# ---- what the model is ------------------------------------------------------------------------------------------


def _head_of(context: FailureContext) -> Head | None:
    kind: Kind | None = next((kind for suffix, kind in _KINDS.items() if context.name.endswith(suffix)), None)
    if kind is None or not _is_of_transformers(context):
        return None
    if kind in ("words", "translation"):
        classes = _rows_of(context.inner, "get_output_embeddings") if _is_text_only(context) else None
    elif kind == "choices":
        ids = context.columns.get("input_ids")
        classes = ids.shape[1] if isinstance(ids, Tensor) and ids.dim() == 3 else None
    else:
        classes = getattr(context.config, "num_labels", None)
    if not isinstance(classes, int) or classes < 1:
        return None
    return Head(kind, classes, getattr(context.config, "problem_type", None))


def _is_text_only(context: FailureContext) -> bool:
    return all(getattr(context.config, name, None) is None for name in _OTHER_SENSES)


def _rows_of(model: Any, getter: str) -> int | None:
    """Return how many tokens an embedding table has, if it is a plain one."""
    get = getattr(model, getter, None)
    try:
        weight = getattr(get() if callable(get) else None, "weight", None)
    except (AttributeError, NotImplementedError):
        return None
    return weight.shape[0] if isinstance(weight, Tensor) and weight.dim() == 2 else None


# ---- checks -------------------------------------------------------------------------------------------------------


def _tokens_out_of_range(context: FailureContext) -> OutOfRangeError | None:
    judged = _is_of_transformers(context) and _is_text_only(context)
    known = _rows_of(context.inner, "get_input_embeddings") if judged else None
    for name in ("input_ids", "decoder_input_ids"):
        ids = context.columns.get(name)
        if known is not None and isinstance(ids, Tensor) and is_integer(ids):
            if bool(((ids < 0) | (ids >= known)).any()):
                return tokens_out_of_range(context, name, ids, known)
    return None


def tokens_out_of_range(context: FailureContext, name: str, ids: Tensor, known: int) -> OutOfRangeError:
    """Return the error for tokens beyond the embedding table."""
    wrong, rows = _culprits(ids, (ids < 0) | (ids >= known))
    return OutOfRangeError(
        what=f"token {wrong} in column {name!r} is out of range: {context.name} knows {known} tokens, "
        f"0 to {known - 1}",
        why=f"it is in {context.row_numbers(rows)}",
        fix="-100 belongs into labels; give padding the tokenizer's pad_token_id"
        if wrong == IGNORED
        else "use the tokenizer the model was made for, or call model.resize_token_embeddings(len(tokenizer))",
    )


def _rows_head(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    if head.classes == 1 or head.problem == "regression":
        return None
    if head.problem == "multi_label_classification" or (head.problem is None and labels.is_floating_point()):
        return _several_of(context, head, labels)
    if head.problem not in (None, "single_label_classification"):
        return None
    if labels.is_floating_point():
        return TensorTypeError(
            what=f"labels are floats ({kind_of(labels)}), and must be the numbers of classes",
            why=f"problem_type='single_label_classification': one of {head.classes} classes per row",
            fix="make them integers; for a regression load the model with num_labels=1",
        )
    rows = _length(context)
    if rows is not None and labels.numel() != rows:
        return _one_per_row(context, head, labels)
    return _range(context, head, labels)


def _several_of(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    """Check labels of several classes per row: a float for each."""
    rows, example = _length(context), f"[1.0, {', '.join(['0.0'] * (min(head.classes, 3) - 1))}]"
    if not labels.is_floating_point():
        if labels.dim() != 2:
            return _wrong_shape(context, head, labels, example)
        return TensorTypeError(
            what=f"labels are integers ({kind_of(labels)}), and must be floats",
            why="problem_type='multi_label_classification' compares each class with 0.0 or 1.0",
            fix=f"make them floats, for instance {example}",
        )
    if rows is None or tuple(labels.shape) == (rows, head.classes):
        return None
    if labels.numel() == rows:  # a model that was not told sets problem_type itself when it sees floats
        return TensorTypeError(
            what=f"labels are floats ({kind_of(labels)}), and {context.name} has {head.classes} classes",
            why="one float per row is a regression, which has one output; one class per row is an integer",
            fix="make the labels integers, or load the model with num_labels=1 for a regression",
        )
    return _wrong_shape(context, head, labels, example)


def _wrong_shape(context: FailureContext, head: Head, labels: Tensor, example: str) -> TensorShapeError:
    return TensorShapeError(
        what=f"labels have shape {tuple(labels.shape)}, and {context.name} computes {head.classes} logits per row",
        why="problem_type='multi_label_classification' compares each logit with a label of its own",
        fix=f"give every row {head.classes} floats, for instance {example}",
    )


def _one_per_row(context: FailureContext, head: Head, labels: Tensor) -> TensorShapeError:
    ids = context.columns.get("input_ids")
    per_token = isinstance(ids, Tensor) and ids.shape == labels.shape
    one_hot = not per_token and labels.dim() == 2 and labels.shape[1] == head.classes
    other = context.name.replace("SequenceClassification", "TokenClassification")
    return TensorShapeError(
        what=f"labels have shape {tuple(labels.shape)}, and {context.name} predicts one of {head.classes} classes "
        "per row",
        why=f"the batch has {_length(context)} rows, so it needs as many labels, not {labels.numel()}",
        fix=f"use {other} for one label per token"
        if per_token
        else "give the number of the class, or floats with problem_type='multi_label_classification'"
        if one_hot
        else "give every row one integer",
    )


def _tokens_head(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    ids = context.columns.get("input_ids")
    if isinstance(ids, Tensor) and ids.dim() == 2 and labels.shape != ids.shape:
        return TensorShapeError(
            what=f"labels have shape {tuple(labels.shape)}, input_ids {tuple(ids.shape)}: "
            f"{context.name} wants a label for every token",
            why="a row has one label" if labels.dim() == 1 else "are they labels of words, or not padded?",
            fix="use a SequenceClassification model for one label per row"
            if labels.dim() == 1
            else "align them by word_ids(), -100 for special tokens; DataCollatorForTokenClassification pads them",
        )
    return _float_classes(context, labels) or _range(context, head, labels)


def _words_head(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    ids = context.columns.get("input_ids")
    chosen_places = "target_mapping" in context.columns  # XLNet predicts some places only
    if isinstance(ids, Tensor) and ids.dim() == 2 and labels.shape != ids.shape and not chosen_places:
        return TensorShapeError(
            what=f"labels have shape {tuple(labels.shape)}, input_ids {tuple(ids.shape)}: "
            f"{context.name} wants a label for every token",
            why="labels are compared with what the model predicts at each place of input_ids",
            fix="make labels a copy of input_ids, with -100 where nothing is to be learnt; the model shifts them",
        )
    return _float_classes(context, labels) or _range(context, head, labels)


def _choices_head(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    return None if labels.is_floating_point() else _range(context, head, labels)  # floats may be probabilities


def _free_head(context: FailureContext, head: Head, labels: Tensor) -> DataError | None:
    return _float_classes(context, labels) or _range(context, head, labels)


def _float_classes(context: FailureContext, labels: Tensor) -> TensorTypeError | None:
    if not labels.is_floating_point():
        return None
    return TensorTypeError(
        what=f"labels are floats ({kind_of(labels)}), and must be the numbers of classes",
        why=f"{context.name} predicts one of several classes at every place",
        fix="make them integers",
    )


def _range(context: FailureContext, head: Head, labels: Tensor) -> OutOfRangeError | None:
    wrong = (labels != IGNORED) & ((labels < 0) | (labels >= head.classes))
    if not bool(wrong.any()):
        return None
    counted = labels[labels != IGNORED]
    fix = head.fix(int(counted.max()))
    if head.kind in ("rows", "tokens") and int(counted.min()) == 1:
        fix += " (counted from 1? subtract 1)"
    return labels_out_of_range(context, "labels", labels, wrong, head.outcomes, fix)


def labels_out_of_range(
    context: FailureContext, name: str, labels: Tensor, wrong: Tensor, outcomes: str, fix: str
) -> OutOfRangeError:
    """Return the error for labels that are not classes of the model."""
    value, rows = _culprits(labels, wrong)
    counted = labels[labels != IGNORED]
    if value < 0:
        fix = f"mark what is to be ignored with {IGNORED}, and count the classes from 0"
    return OutOfRangeError(
        what=f"label {value} in column {name!r} is out of range: {context.name} {outcomes}",
        why=f"it is in {context.row_numbers(rows)}; the labels of this batch go from {int(counted.min())} to "
        f"{int(counted.max())}",
        fix=fix,
    )


def _culprits(values: Tensor, wrong: Tensor) -> tuple[int, list[int]]:
    """Return the first wrong number, and the rows of the batch that have one."""
    rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().tolist()
    return int(values[wrong][0]), rows


def _length(context: FailureContext) -> int | None:
    """Return the number of rows in the batch, by the main input."""
    main: Any = context.columns.get(getattr(context.inner, "main_input_name", "input_ids"))
    return main.shape[0] if isinstance(main, Tensor) and main.dim() > 0 else None


_CHECKS = {
    "rows": _rows_head,
    "tokens": _tokens_head,
    "words": _words_head,
    "translation": _free_head,
    "choices": _choices_head,
}
