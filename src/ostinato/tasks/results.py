"""Files written at the end: readable predictions, and the model card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ostinato import Trainer

from .recipe import Recipe
from .task_arguments import DataArguments, ModelArguments

PICTURES_NAME = "gallery"  # the directory of pictures for the report
PREDICTIONS_NAME = "predictions.jsonl"


def write_predictions(recipe: Recipe, output: Any, rows: Any, directory: Path, suffix: str = "") -> Path:
    """Write one line of JSON for each row: the input and the prediction."""
    directory.mkdir(parents=True, exist_ok=True)  # without training, nothing else has created it
    path = directory / PREDICTIONS_NAME.replace(".", f"{suffix}.", 1)
    with path.open("w", encoding="utf-8") as file:
        for prediction in recipe.format_predictions(output, rows):
            file.write(json.dumps(prediction, ensure_ascii=False, default=_to_json_type) + "\n")
    recipe.write_prediction_files(output, rows, directory)
    return path


def remove_pictures(directory: Path) -> None:
    """Remove the pictures that an earlier run left: the report would show them as those of this run."""
    shutil.rmtree(directory / PICTURES_NAME, ignore_errors=True)


def _to_json_type(value: Any) -> Any:
    """Return numbers and arrays of numpy as JSON types."""
    return value.tolist() if callable(getattr(value, "tolist", None)) else str(value)


def collect_card_arguments(recipe: Recipe, model: ModelArguments, data: DataArguments) -> dict[str, Any]:
    """Return the facts about the task, the model and the rows for the model card."""
    facts = recipe.get_card_arguments()
    if model.model_name_or_path is not None:
        facts["finetuned_from"] = model.model_name_or_path
    if data.dataset_name is not None:
        facts["dataset_tags"] = data.dataset_name
        facts["dataset"] = " ".join(filter(None, [data.dataset_name, data.dataset_config_name]))
        if data.dataset_config_name is not None:
            facts["dataset_args"] = data.dataset_config_name
    return facts


def publish(trainer: Trainer, facts: dict[str, Any]) -> None:
    """Write the model card; with --push_to_hub, upload everything."""
    if trainer.args.push_to_hub:
        trainer.push_to_hub(**facts)
    else:
        trainer.create_model_card(**facts)
