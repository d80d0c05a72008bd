"""Output of a command: the rows and the plan for them, and the result of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato import Trainer

from .recipe import Recipe, Sample
from .rows import TRAIN, Split

_MAX_SHOWN_CHARACTERS = 300  # of the first row


def describe_plan(recipe: Recipe, splits: Mapping[str, Split], features: Mapping[str, Any], trainer: Trainer) -> str:
    """Return a description of the rows, the first of them as the model gets it, and the trainer's own plan."""
    width = max(map(len, splits))
    lines = [f"What `ostinato train {recipe.name}` reads", ""]
    for name, split in splits.items():
        made = features[name]
        lines.append(f"  {name:<{width}}  {split}: {', '.join(split.columns)}")
        lines.append(f"  {'':<{width}}  {recipe.describe_features(made)}")
    lines += [
        "",
        "  the first row as the model reads it",
        f"    {_shorten(recipe.describe_first_row(next(iter(features.values()))))}",
        "",
    ]
    if TRAIN in splits:
        return "\n".join([*lines, str(trainer.plan())])
    return "\n".join([*lines, "No training."])


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 1]}…"


def describe_sample_result(sample: Sample, metrics: Mapping[str, float]) -> str:
    """Return whether a sample was learned better than its baseline, which needs no learning."""
    if sample.metric not in metrics:
        return f"--sample: {sample.metric} was not measured"
    value, better = metrics[sample.metric], "below" if sample.lower_is_better else "above"
    outcome = better if sample.is_beaten_by(metrics) else f"not {better}"
    return f"--sample: {sample.metric} {value:.4g}, {outcome} {sample.baseline:.4g} ({sample.meaning})"
