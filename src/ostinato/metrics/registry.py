"""Make metrics by name, one or several at a time."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ..core.errors import MetricError
from .base import Metric
from .classification import (
    F1,
    Accuracy,
    BalancedAccuracy,
    MatthewsCorrelation,
    Precision,
    Recall,
    RocAuc,
    TopKAccuracy,
)
from .combination import Combined
from .entities import Seqeval
from .error_rates import CharacterErrorRate, WordErrorRate
from .language import Perplexity, TokenAccuracy
from .multilabel import (
    HammingLoss,
    MultilabelAccuracy,
    MultilabelF1,
    MultilabelPrecision,
    MultilabelRecall,
    MultilabelRocAuc,
)
from .qa import AnswerSpan, Squad, SquadV2
from .regression import R2, MeanAbsoluteError, MeanSquaredError, Pearson, RootMeanSquaredError, Spearman
from .retrieval import Retrieval
from .rouge import Rouge
from .segmentation import MeanIoU
from .text_overlap import Bleu, Chrf, ExactMatch

Kind = tuple[type[Metric], dict[str, Any]]

_KINDS: list[type[Metric]] = [
    Accuracy, TopKAccuracy, BalancedAccuracy, F1, Precision, Recall, MatthewsCorrelation, RocAuc,
    MultilabelAccuracy, MultilabelF1, MultilabelPrecision, MultilabelRecall, MultilabelRocAuc, HammingLoss,
    MeanSquaredError, RootMeanSquaredError, MeanAbsoluteError, R2, Pearson, Spearman,
    Perplexity, TokenAccuracy, Seqeval, Squad, SquadV2, AnswerSpan,
    Bleu, Chrf, ExactMatch, Rouge, WordErrorRate, CharacterErrorRate, MeanIoU, Retrieval,
]  # fmt: skip

_PRESETS: dict[str, Kind] = {
    **{
        f"{kind.default_name}_{average}": (kind, {"average": average})
        for kind, averages in {
            **dict.fromkeys((F1, Precision, Recall), ("binary", "macro", "micro", "weighted")),
            **dict.fromkeys(
                (MultilabelF1, MultilabelPrecision, MultilabelRecall), ("micro", "macro", "weighted", "samples")
            ),
        }.items()
        for average in averages
    },
    **{f"rouge{n}".lower(): (Rouge, {"kinds": (f"rouge{n}",)}) for n in ("1", "2", "L", "Lsum")},
    "chrf_plus_plus": (Chrf, {"word_order": 2}),
    "mrr": (Retrieval, {"at": (), "mrr": True}),
    "recall_at_k": (Retrieval, {"mrr": False}),
}

_ALIASES = {
    "acc": "accuracy", "accuracy_score": "accuracy",
    "balanced_acc": "balanced_accuracy", "balanced_accuracy_score": "balanced_accuracy", "uar": "balanced_accuracy",
    "f1_score": "f1", "fscore": "f1", "f_score": "f1", "macro_f1": "f1_macro", "micro_f1": "f1_micro",
    "weighted_f1": "f1_weighted", "precision_score": "precision", "recall_score": "recall",
    "mcc": "matthews_correlation", "matthews": "matthews_correlation", "matthews_corrcoef": "matthews_correlation",
    "auc": "roc_auc", "auroc": "roc_auc", "rocauc": "roc_auc", "roc_auc_score": "roc_auc",
    "subset_accuracy": "multilabel_accuracy", "hamming": "hamming_loss",
    "mean_squared_error": "mse", "root_mean_squared_error": "rmse", "mean_absolute_error": "mae",
    "r2_score": "r2", "r_squared": "r2", "pearsonr": "pearson", "pearson_correlation": "pearson",
    "spearmanr": "spearman", "spearman_correlation": "spearman", "spearman_rho": "spearman",
    "ppl": "perplexity", "tok_acc": "token_accuracy", "token_acc": "token_accuracy",
    "ner": "seqeval", "entity_f1": "seqeval", "conll": "seqeval", "squad_v1": "squad", "squadv2": "squad_v2",
    "squad2": "squad_v2", "em": "exact_match", "sacrebleu": "bleu", "chrf++": "chrf_plus_plus",
    "chrfpp": "chrf_plus_plus", "word_error_rate": "wer", "character_error_rate": "cer", "char_error_rate": "cer",
    "miou": "mean_iou", "iou": "mean_iou", "jaccard": "mean_iou", "mean_reciprocal_rank": "mrr",
}  # fmt: skip


def available() -> dict[str, str]:
    """Return every name with a line about it.

    >>> available()["wer"]
    'Edits of words per word of the references. May exceed 1.'
    """
    about = {kind.default_name: (inspect.getdoc(kind) or "").splitlines()[0] for kind in _KINDS}
    for name, (kind, options) in _PRESETS.items():
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
        about[name] = f"metric({kind.default_name!r}, {shown})"
    return about


def metric(name: str, /, **options: Any) -> Metric:
    """Return a metric by its name, in any spelling: "F1", "f1-macro", "mcc", "recall@10".

    Args:
        name: one of `available()`, in any spelling; its result has this name.
        **options: those of the metric's class, and for all `name`, `ignore_index`, `interval`, `resamples` and `seed`.

    Returns:
        An empty metric.

    Raises:
        MetricError: there is no such metric or option, or a library that it needs is not installed.

    >>> metric("mcc")(([0, 1], [0, 1]))
    {'mcc': 1.0}
    >>> metric("f1", average="macro")(([0, 1, 2], [0, 1, 1]))
    {'f1': 0.5555555555555555}
    >>> metric("perplexty")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.MetricError: there is no metric 'perplexty'
      why: the nearest names are 'perplexity'
      fix: metric('perplexity'); available() lists all
    """
    normalized = _normalize_name(name)
    kind, preset = _find_kind(normalized, name)
    _check_options(kind, preset, options, name)
    shown = _ALIASES[normalized] if "+" in normalized else normalized  # trackers take letters, digits and underscores
    return kind(**{"name": shown, **preset, **options})


def higher_is_better(name: str) -> bool:
    """Tell whether higher values of a metric are better: the default of `greater_is_better`.

    Args:
        name: The name of the metric.

    Returns:
        True if higher is better.

    >>> higher_is_better("rmse"), higher_is_better("f1")
    (False, True)
    """
    return _find_kind(_normalize_name(name), name)[0].higher_is_better


def metrics(wanted: Iterable[str | Metric | tuple[str, Mapping[str, Any]]], **options: Any) -> Combined:
    """Combine several metrics over the same predictions into one.

    Args:
        wanted: names, `(name, options)` pairs or metrics.
        **options: go to each metric that is made by name.

    Returns:
        A metric whose result has the values of all.

    Raises:
        MetricError: as `metric` does.

    >>> both = metrics(["accuracy", ("f1", {"average": "macro"})])
    >>> both(([0, 1, 2], [0, 1, 1]))
    {'accuracy': 0.6666666666666666, 'f1': 0.5555555555555555}
    """
    if isinstance(wanted, str):
        wanted = [wanted]
    return Combined([_build_metric(one, options) for one in wanted])


def _build_metric(one: Any, options: Mapping[str, Any]) -> Metric:
    if isinstance(one, Metric):
        return one
    if isinstance(one, str):
        return metric(one, **options)
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], Mapping):
        return metric(one[0], **{**options, **one[1]})
    raise MetricError(
        what=f"{type(one).__name__} is not a metric",
        why="a list of metrics holds names, (name, options) pairs or metrics of this library",
        fix="metrics=['accuracy', ('f1', {'average': 'macro'})]",
    )


def _normalize_name(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold()).replace("@", "_at_")


def _find_kind(normalized: str, name: str) -> Kind:
    known = {**{kind.default_name: (kind, {}) for kind in _KINDS}, **_PRESETS}
    canonical = _ALIASES.get(normalized, normalized)
    if canonical in known:
        return known[canonical]
    at = re.fullmatch(r"recall_at_(\d+)", canonical)
    if at:
        return Retrieval, {"mrr": False, "at": (int(at[1]),)}
    top = re.fullmatch(r"top_?(\d+)(_accuracy)?", canonical)
    if top:
        return TopKAccuracy, {"k": int(top[1]), "name": f"top_{top[1]}_accuracy"}
    close = get_close_matches(normalized, [*known, *_ALIASES], n=3, cutoff=0.65)
    near = list(dict.fromkeys(_ALIASES.get(one, one) for one in close))
    why = f"the nearest names are {', '.join(map(repr, near))}" if near else "no name is similar"
    fix = f"metric({near[0]!r}); available() lists all" if near else "available() lists all names"
    raise MetricError(f"there is no metric {name!r}", why, fix)


def _check_options(kind: type[Metric], preset: Mapping[str, Any], options: Mapping[str, Any], name: str) -> None:
    known = _list_options(kind)
    for option in options:
        if option in preset:
            raise MetricError(
                what=f"metric({name!r}) does not take {option}=",
                why=f"the name already says {option}={preset[option]!r}",
                fix=f"metric({kind.default_name!r}, {option}={options[option]!r})",
            )
        if option not in known:
            near = get_close_matches(option, known, n=1)
            raise MetricError(
                what=f"metric({name!r}) has no option {option}=",
                why=f"it takes {', '.join(sorted(known))}",
                fix=f"{near[0]}={options[option]!r}" if near else f"leave out {option}=",
            )


def _list_options(kind: type[Metric]) -> set[str]:
    """Return the keyword arguments of a class and its bases."""
    found: set[str] = set()
    for ancestor in kind.__mro__:
        if "__init__" in ancestor.__dict__ and ancestor is not object:
            parameters = inspect.signature(ancestor.__init__).parameters.values()
            found |= {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    return found
