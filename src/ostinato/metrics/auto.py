"""Choose the metrics that fit a task, from plain facts about the model and its labels.

Nothing is loaded or run here: `facts_of` reads a model's class and configuration, `suits` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.eval_prediction import has_labels
from ..core.tree import numpify
from .combination import Combined
from .registry import metrics

# What a class name says about its head; the first that is part of the name counts.
_HEADS = {
    "TokenClassification": "tokens",
    "MultipleChoice": "multiple choice",
    "SemanticSegmentation": "segmentation",
    "ObjectDetection": "detection",
    "UniversalSegmentation": "detection",
    "InstanceSegmentation": "detection",
    "CTC": "ctc",
    "Seq2SeqLM": "seq2seq",
    "SpeechSeq2Seq": "seq2seq",
    "EncoderDecoderModel": "seq2seq",
    "MTModel": "seq2seq",
    "ConditionalGeneration": "generation",
    "MaskedLM": "masked",
    "WithLMHeadModel": "masked",
    "XLNetLMHeadModel": "masked",
    "CausalLM": "causal",
    "LMHeadModel": "causal",
    "SequenceClassification": "classification",
    "ImageClassification": "classification",
    "AudioClassification": "classification",
    "VideoClassification": "classification",
    "NextSentencePrediction": "classification",
}
_SPEECH = ("Whisper", "Speech", "Moonshine")
_TRANSLATORS = ("MTModel", "M2M100", "FSMT")
_ANSWERS = {"start_positions", "end_positions"}
_TAG_PREFIXES = ("B-", "I-", "E-", "S-", "L-", "U-")


@dataclass(frozen=True)
class Facts:
    """What is known about a task. Everything may be left out.

    >>> Facts(model_class="BertForMaskedLM").num_labels is None
    True
    """

    model_class: str = ""
    architectures: tuple[str, ...] = ()  # of the configuration; may be those of the checkpoint it came from
    problem_type: str | None = None  # "regression", "single_label_classification", "multi_label_classification"
    num_labels: int | None = None
    id2label: Mapping[Any, str] = field(default_factory=dict)
    label_names: tuple[str, ...] = ("labels",)  # what the labels are called in a batch
    label_shape: tuple[int, ...] | None = None  # of a batch of labels
    label_dtype: str | None = None  # "int64", "float32"
    labels_are_binary: bool | None = None  # nothing but 0 and 1 (and -100) among them
    has_ignored: bool = False  # -100 among them
    vocab_size: int | None = None
    is_encoder_decoder: bool = False
    generates: bool = False  # predict_with_generate
    task: str | None = None  # "summarization", "translation", "transcription", …
    unlabelled_pixel: int | None = None  # the number of pixels without a label
    installed: frozenset[str] = frozenset()  # optional libraries that are there


@dataclass(frozen=True)
class Choice:
    """The metrics that fit, and why; without names, `why` says what to do.

    >>> Choice(("accuracy",), "one class per row").build()(([1], [1]))
    {'accuracy': 1.0}
    """

    names: tuple[str, ...]
    why: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # options that `build` must be given: "tokenizer"

    def build(self, **options: Any) -> Combined:
        """Build the metrics.

        Args:
            options: Options of every metric, such as `interval=0.95`; those in `needs` have to be given.

        Returns:
            The metrics, combined.
        """
        return metrics([(name, self.options.get(name, {})) for name in self.names], **options)


def suits(facts: Facts) -> Choice:
    """Choose the metrics that fit a task.

    Args:
        facts: What is known about it.

    Returns:
        The choice, with the reason.

    >>> choice = suits(Facts(model_class="GPT2LMHeadModel", vocab_size=50257))
    >>> choice.names
    ('perplexity', 'token_accuracy')
    >>> choice.why
    'GPT2LMHeadModel predicts the next token, so labels are compared one place later'
    """
    if set(facts.label_names) >= _ANSWERS:
        return Choice(
            names=("answer_span",),
            why="the labels are start_positions and end_positions, so spans of tokens are compared;"
            " to score the answers' texts, turn spans into texts and use 'squad'",
        )
    for source in (facts.model_class, *facts.architectures):
        head = _find_head(source)
        if head is not None and (source == facts.model_class or _is_plausible(head, facts)):
            return _choose_for_head(head, source, facts)
    return _choose_for_labels(facts)


def facts_of(
    model: Any,
    *,
    labels: Any = None,
    label_names: Sequence[str] = ("labels",),
    generates: bool = False,
    installed: Sequence[str] = (),
) -> Facts:
    """Collect what a model and a batch of labels tell about a task.

    Args:
        model: The model; its class and its configuration, if it has one, are read.
        labels: A batch of labels.
        label_names: What the labels are called in a batch.
        generates: Whether texts are generated in the evaluation.
        installed: Optional packages that may be used.

    Returns:
        The facts, for `suits`.

    >>> import torch
    >>> facts_of(torch.nn.Linear(2, 1), labels=torch.tensor([0.5, 1.5])).label_dtype
    'float32'
    """
    config = getattr(model, "config", None)

    def known(name: str, default: Any = None) -> Any:
        value = getattr(config, name, None)
        return default if value is None else value

    return Facts(
        model_class=type(model).__name__,
        architectures=tuple(known("architectures", ())),
        problem_type=known("problem_type"),
        num_labels=known("num_labels"),
        id2label=dict(known("id2label", {})),
        label_names=tuple(label_names),
        vocab_size=known("vocab_size"),
        is_encoder_decoder=bool(known("is_encoder_decoder", False)),
        generates=generates,
        task=_read_task(known("task_specific_params", {})),
        unlabelled_pixel=known("semantic_loss_ignore_index"),
        installed=frozenset(installed),
        **_read_label_facts(labels),
    )


def _read_label_facts(labels: Any) -> dict[str, Any]:
    if isinstance(labels, (tuple, list)) and labels and getattr(labels[0], "shape", None) is not None:
        labels = labels[0]
    if not has_labels(labels):
        return {}
    found = np.asarray(numpify(labels))
    real = found[found != -100]
    return {
        "label_shape": found.shape,
        "label_dtype": str(found.dtype),
        "labels_are_binary": bool(np.isin(real, (0, 1)).all()) if found.dtype.kind in "biuf" else None,
        "has_ignored": real.size < found.size,
    }


def _read_task(tasks: Mapping[str, Any]) -> str | None:
    """Return the task of a configuration that is made for one; one that lists several says nothing."""
    kinds = {name.partition("_")[0] for name in tasks}
    return kinds.pop() if len(kinds) == 1 else None


def _find_head(class_name: str) -> str | None:
    return next((head for part, head in _HEADS.items() if part in class_name), None)


def _is_plausible(head: str, facts: Facts) -> bool:
    """Return whether labels fit a head that only the configuration names: it may be the backbone's."""
    if facts.label_shape is None:
        return True
    wide = head in ("tokens", "masked", "causal", "seq2seq", "generation")
    return len(facts.label_shape) == (3 if head == "segmentation" else 2 if wide else len(facts.label_shape))


# ---------------------------------------------------------------------------------------------------------- by head


def _choose_for_head(head: str, model: str, facts: Facts) -> Choice:
    if head == "generation":
        head = "seq2seq" if facts.is_encoder_decoder or any(part in model for part in _SPEECH) else "causal"
    if head == "causal" and facts.generates:
        head = "seq2seq"
    return {
        "tokens": _choose_for_tagging,
        "multiple choice": _choose_for_multiple_choice,
        "segmentation": _choose_for_segmentation,
        "detection": _choose_for_detection,
        "ctc": _choose_for_ctc,
        "seq2seq": _choose_for_seq2seq,
        "masked": _choose_for_masked,
        "causal": _choose_for_causal,
        "classification": _choose_for_classification,
    }[head](model, facts)


def _choose_for_classification(model: str, facts: Facts) -> Choice:
    problem = facts.problem_type or _find_problem_type(facts)
    if problem == "regression":
        return _choose_for_regression(f"{model} {_explain_problem(facts, 'predicts a number')}", facts)
    if problem == "multi_label_classification":
        return _choose_for_multilabel(f"{model} {_explain_problem(facts, 'gives several labels per row')}")
    return _choose_for_single_label(f"{model} gives one of {facts.num_labels or 'several'} classes per row", facts)


def _find_problem_type(facts: Facts) -> str:
    """Apply the rule by which the models themselves choose their loss."""
    if facts.num_labels == 1:
        return "regression"
    floats = facts.label_dtype is not None and "float" in facts.label_dtype
    return "multi_label_classification" if floats else "single_label_classification"


def _explain_problem(facts: Facts, what: str) -> str:
    if facts.problem_type:
        return f"{what} (problem_type={facts.problem_type!r})"
    return f"{what} ({'num_labels=1' if facts.num_labels == 1 else 'its labels are floats'})"


def _choose_for_single_label(why: str, facts: Facts) -> Choice:
    if facts.num_labels == 2:
        return Choice(("accuracy", "f1", "matthews_correlation"), why, {"f1": {"average": "binary"}})
    average = {} if facts.num_labels is None else {"f1": {"average": "macro"}}
    return Choice(("accuracy", "f1"), why, average)


def _choose_for_regression(why: str, facts: Facts) -> Choice:
    wide = facts.label_shape is not None and len(facts.label_shape) > 1 and facts.label_shape[-1] > 1
    return Choice(("mse", "mae", "r2") if wide else ("mse", "mae", "pearson", "spearman"), why)


def _choose_for_multilabel(why: str) -> Choice:
    options = {"multilabel_f1": {"average": "micro"}}
    return Choice(("multilabel_f1", "multilabel_accuracy"), f"{why}, which hold or not one by one", options)


def _choose_for_tagging(model: str, facts: Facts) -> Choice:
    if any(str(tag).startswith(_TAG_PREFIXES) for tag in facts.id2label.values()):
        why = f"{model} tags tokens, and its tags name entities (B-, I-), so whole entities are compared"
        return Choice(("seqeval",), why, {"seqeval": {"label_names": dict(facts.id2label)}})
    why = f"{model} gives one class per token, and its labels name no entities (B-, I-), so tokens are compared"
    return Choice(("accuracy", "f1"), why, {"f1": {"average": "macro"}})


def _choose_for_multiple_choice(model: str, facts: Facts) -> Choice:
    return Choice(
        ("accuracy",), f"{model} picks one of several choices; their order means nothing, so only hits count"
    )


def _choose_for_causal(model: str, facts: Facts) -> Choice:
    why = f"{model} predicts the next token, so labels are compared one place later"
    return Choice(("perplexity", "token_accuracy"), why, _build_shift_options(by_one=True))


def _choose_for_masked(model: str, facts: Facts) -> Choice:
    why = f"{model} predicts masked tokens where they stand, so labels are compared in place"
    return Choice(("perplexity", "token_accuracy"), why, _build_shift_options(by_one=False))


def _choose_for_seq2seq(model: str, facts: Facts) -> Choice:
    if not facts.generates:
        why = f"{model} predicts the target in place, given what precedes; predict_with_generate=True compares texts"
        return Choice(("perplexity", "token_accuracy"), why, _build_shift_options(by_one=False))
    task = facts.task or _guess_task(model)
    if task in ("transcription", "automatic-speech-recognition"):
        if "jiwer" not in facts.installed:
            why = f"{model} transcribes speech; WER and CER need jiwer: pip install 'ostinato[metrics]'"
            return Choice((), why)
        why = f"{model} transcribes speech, so words and characters are compared"
        return Choice(("wer", "cer"), why, {}, ("tokenizer",))
    if task.startswith("translation"):
        names = ("chrf", "bleu") if "sacrebleu" in facts.installed else ("chrf",)
        return Choice(names, f"{model} translates, so generated texts are compared", {}, ("tokenizer",))
    why = f"{model} writes texts (predict_with_generate), so they are compared with the references"
    return Choice(("rouge",), why, {}, ("tokenizer",))


def _guess_task(model: str) -> str:
    if any(part in model for part in _SPEECH):
        return "transcription"
    return "translation" if any(part in model for part in _TRANSLATORS) else ""


def _choose_for_segmentation(model: str, facts: Facts) -> Choice:
    options = {} if facts.unlabelled_pixel is None else {"mean_iou": {"ignore_index": facts.unlabelled_pixel}}
    return Choice(("mean_iou",), f"{model} gives one class per pixel, so areas are compared", options)


def _choose_for_detection(model: str, facts: Facts) -> Choice:
    return Choice(
        (), f"{model} finds objects, which needs mean average precision: pass torchmetrics' as compute_metrics"
    )


def _choose_for_ctc(model: str, facts: Facts) -> Choice:
    return Choice((), f"{model} needs its logits decoded: in compute_metrics, decode both sides and use metric('wer')")


def _build_shift_options(*, by_one: bool) -> dict[str, dict[str, bool]]:
    return {"perplexity": {"shift": by_one}, "token_accuracy": {"shift": by_one}}


# --------------------------------------------------------------------------------------------------------- by labels


def _choose_for_labels(facts: Facts) -> Choice:
    """Choose by the labels, for a model whose class name says nothing."""
    shape, floats = facts.label_shape, "float" in (facts.label_dtype or "")
    if facts.problem_type is not None:
        return _choose_for_classification(facts.model_class or "the model", facts)
    if shape is None or facts.label_dtype is None:
        return _choose_none(facts, "its class name tells no task, and no labels were seen")
    column = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    if column and floats:
        return _choose_for_regression("the labels are one float per row: a value to predict", facts)
    if column:
        return _choose_for_single_label("the labels are one whole number per row: a class", facts)
    if facts.is_encoder_decoder and not floats and len(shape) == 2:
        return _choose_for_seq2seq(facts.model_class or "the model", facts)
    table = len(shape) == 2 and facts.labels_are_binary and shape[1] == (facts.num_labels or shape[1])
    if table and (floats or (facts.num_labels is not None and not facts.has_ignored)):
        return _choose_for_multilabel("the labels are a table of 0 and 1")
    if floats and not facts.labels_are_binary:
        return _choose_for_regression(
            f"the labels are {' x '.join(map(str, shape[1:]))} floats per row: values to predict", facts
        )
    tokens = f" (its vocabulary has {facts.vocab_size} tokens: try 'token_accuracy')" if facts.vocab_size else ""
    return _choose_none(facts, f"labels of shape {shape} and type {facts.label_dtype} fit several tasks{tokens}")


def _choose_none(facts: Facts, reason: str) -> Choice:
    model = facts.model_class or "the model"
    return Choice((), f"no metric fits {model} for sure: {reason}; name them, as in metrics=['accuracy', 'f1']")
