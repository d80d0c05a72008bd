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
        lines.append(f"  {'':<{width}}  encoded: {len(made):,} rows of {', '.join(made.column_names)}")
    lines += [
        "",
        "  the first row as the model reads it",
        f"    {_describe_first_row(recipe, next(iter(features.values())))}",
        "",
    ]
    if TRAIN in splits:
        return "\n".join([*lines, str(trainer.plan())])
    return "\n".join([*lines, "No training."])


def _describe_first_row(recipe: Recipe, features: Any) -> str:
    ids = features[0].get("input_ids") if len(features) else None
    if ids is None or recipe.tokenizer is None:
        return "it has no input_ids"
    several = ids if ids and isinstance(ids[0], list) else [ids]
    padding = recipe.tokenizer.pad_token_id
    text = " | ".join(recipe.tokenizer.decode([one for one in each if one != padding]) for each in several)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 1]}…"


def describe_sample_result(sample: Sample, metrics: Mapping[str, float]) -> str:
    """Return whether a sample was learned better than its baseline, which needs no learning."""
    if sample.metric not in metrics:
        return f"--sample: {sample.metric} was not measured"
    value, better = metrics[sample.metric], "below" if sample.lower_is_better else "above"
    outcome = better if sample.is_beaten_by(metrics) else f"not {better}"
    return f"--sample: {sample.metric} {value:.4g}, {outcome} {sample.baseline:.4g} ({sample.meaning})"
