"""Write the README.md of a model: metadata for the hub, and text for people.

The metadata of an existing card is kept, unless the caller overrides it; so is text that a person wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.notices import note_once, warn
from .repository import import_hub_library

CARD_NAME = "README.md"
TAG = "generated_from_trainer"

_GENERATED_NOTICE = (
    "<!-- Written by the trainer from what it knows about the run: please complete the sections below. -->"
)
# Texts that programs wrote: ours, transformers' and PEFT's. Any other was written by a person.
_GENERATED_MARKS = (
    _GENERATED_NOTICE,
    "Written by the trainer, who knows how this model was made",  # the notice of earlier versions
    "generated automatically according to the information the Trainer",
    "for Model ID",
)
_PLACEHOLDER = "Nothing has been written here yet."
_SPEED_METRICS = (
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "tokens_per_second",
    "mfu",
    "model_preparation_time",
)
_TASKS = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "CausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "MaskedLM": "fill-mask",
    "MultipleChoice": "multiple-choice",
    "ImageClassification": "image-classification",
    "ObjectDetection": "object-detection",
    "SemanticSegmentation": "image-segmentation",
    "AudioClassification": "audio-classification",
    "CTC": "automatic-speech-recognition",
    "SpeechSeq2Seq": "automatic-speech-recognition",
}


@dataclass(frozen=True)
class CardRequest:
    """What the caller says of the model; it takes precedence over everything else."""

    language: list[str] = field(default_factory=list)
    license: str | None = None
    tags: list[str] = field(default_factory=list)
    base_model: str | None = None
    tasks: list[str] = field(default_factory=list)
    dataset_tags: list[str] = field(default_factory=list)  # their names on the hub
    datasets: list[str] = field(default_factory=list)  # their names in the text
    dataset_args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CardFacts:
    """What the trainer knows of the model."""

    name: str
    model_class: str
    library_name: str | None
    base_model: str | None
    tags: tuple[str, ...]
    dataset: tuple[str, str | None] | None  # on the hub: its name, and the configuration of it
    hyperparameters: Mapping[str, Any]
    log_history: Sequence[Mapping[str, Any]]
    best_step: int | None  # whose weights the model has, if not those of the last step
    versions: Mapping[str, str]


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """Return one value, several or None as a list.

    >>> as_list("en"), as_list(None), as_list(["en", "fr"])
    (['en'], [], ['en', 'fr'])
    """
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def write_card(directory: Path, asked: CardRequest, facts: CardFacts) -> None:
    """Write README.md, or update the existing one."""
    library = import_hub_library("create_model_card")
    path = Path(directory) / CARD_NAME
    before, text = _read_existing(library, path)
    data = library.ModelCardData(**_merge_metadata(before, asked, facts))
    results = _build_results(library, asked, facts) or getattr(before, "eval_results", None)
    data.model_name, data.eval_results = facts.name, results or []
    if text is None:
        text = _build_text(asked, facts, data.base_model)
    else:
        note_once(f"{path} was edited by hand: its text is kept, its metadata is updated")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n", encoding="utf-8")


def _read_existing(library: Any, path: Path) -> tuple[Any, str | None]:
    """Return the metadata of the existing card, and its text if a person wrote it."""
    if not path.is_file():
        return None, None
    try:
        card = library.ModelCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except Exception as error:  # YAML errors of any kind: a card must not make a run fail
        warn(f"the metadata of {path} cannot be read and is replaced: {error}")
        return None, None
    is_own_text = card.text.strip() and not any(mark in card.text for mark in _GENERATED_MARKS)
    return card.data, card.text if is_own_text else None


# ---- what the hub reads --------------------------------------------------------------------------------------------


def _merge_metadata(before: Any, asked: CardRequest, facts: CardFacts) -> dict[str, Any]:
    known = {} if before is None else {k: v for k, v in before.to_dict().items() if k != "model-index"}
    found = {
        "library_name": facts.library_name,
        "base_model": facts.base_model,
        "datasets": [facts.dataset[0]] if facts.dataset is not None else None,
    }
    said = {
        "language": asked.language,
        "license": asked.license,
        "base_model": asked.base_model,
        "datasets": asked.dataset_tags,
    }
    merged = {**found, **known, **{name: value for name, value in said.items() if value}}
    merged["tags"] = list(dict.fromkeys([*as_list(known.get("tags")), *facts.tags, *asked.tags, TAG]))
    metrics = list(_find_scores(facts))
    if metrics:
        merged["metrics"] = metrics
    return {name: value for name, value in merged.items() if value is not None}


def _build_results(library: Any, asked: CardRequest, facts: CardFacts) -> list[Any]:
    """Return the `model-index`: the value of each metric, for which task and data; all have to be known."""
    tags = asked.dataset_tags or ([facts.dataset[0]] if facts.dataset is not None else [])
    config = facts.dataset[1] if facts.dataset is not None and not asked.dataset_tags else None
    tasks = asked.tasks or [task for ending, task in _TASKS.items() if facts.model_class.endswith(ending)][:1]
    found = []
    for task in tasks:
        for place, tag in enumerate(tags):
            for metric, value in _find_scores(facts).items():
                found.append(
                    library.EvalResult(
                        task_type=task,
                        task_name=_format_title(task),
                        dataset_type=tag,
                        dataset_name=(asked.datasets[place : place + 1] or [tag])[0],
                        dataset_config=config,
                        dataset_args=(asked.dataset_args[place : place + 1] or [None])[0],
                        metric_type=metric,
                        metric_name=_format_title(metric),
                        metric_value=value,
                    )
                )
    return found


# ---- what people read ----------------------------------------------------------------------------------------------


def _build_text(asked: CardRequest, facts: CardFacts, base_model: Any) -> str:
    base = as_list(base_model)
    of = f"[{base[0]}](https://huggingface.co/{base[0]}), trained further" if base else f"{facts.model_class}, trained"
    names = asked.datasets or asked.dataset_tags or ([facts.dataset[0]] if facts.dataset is not None else [])
    data = " and ".join(names) if names else "a dataset that the trainer has no name for"
    parts = [_GENERATED_NOTICE, f"# {facts.name}", f"{of} on {data}."]
    measured = find_evaluation(facts)
    if measured:
        lines = [f"- {_format_title(name)}: {_format_number(value)}" for name, value in measured.items()]
        parts += ["On the evaluation set:", "\n".join(lines)]
    for title in ("Model description", "Intended uses & limitations", "Training and evaluation data"):
        parts += [f"## {title}", _PLACEHOLDER]
    parts += ["## Training procedure", "### Training hyperparameters"]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.hyperparameters.items()))
    if table := list(_build_table(facts)):
        parts += ["### Training results", "\n".join(table)]
    parts += ["### Framework versions", "\n".join(f"- {name} {version}" for name, version in facts.versions.items())]
    return "\n\n".join(parts)


def _build_table(facts: CardFacts) -> Iterator[str]:
    """Yield a row for each evaluation during training, with the training loss last logged before it."""
    rows: dict[int, dict[str, Any]] = {}
    loss: Any = None
    for entry in facts.log_history:
        if "train_runtime" in entry:
            break
        loss = entry.get("loss", loss)
        measured = _find_metrics(entry)
        if measured:
            row = rows.setdefault(entry["step"], {"loss": loss, "epoch": entry.get("epoch")})
            row.update({f"eval_{name}": value for name, value in measured.items()})
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows.values() for name in row if name.startswith("eval_")))
    titles = [
        "Validation Loss" if name == "eval_loss" else _format_title(name.removeprefix("eval_")) for name in names
    ]
    yield "| " + " | ".join(["Training Loss", "Epoch", "Step", *titles]) + " |"
    yield "|" + ":---:|" * (3 + len(titles))
    for step, row in rows.items():
        cells = [
            _format_number(row["loss"]),
            _format_number(row["epoch"]),
            str(step),
            *(_format_number(row.get(name)) for name in names),
        ]
        yield "| " + " | ".join(cells) + " |"


def find_evaluation(facts: CardFacts) -> dict[str, float]:
    """Return the metrics after training, else of the step its weights are from, else the last ones."""
    measured: dict[int, dict[str, float]] = {}
    after_training: dict[str, float] = {}
    is_over = False
    for entry in facts.log_history:
        is_over = is_over or "train_runtime" in entry
        numbers = _find_metrics(entry)
        if numbers:
            (after_training if is_over else measured.setdefault(entry["step"], {})).update(numbers)
    if after_training or not measured:
        return after_training
    return measured.get(facts.best_step or -1) or measured[max(measured)]


def _find_scores(facts: CardFacts) -> dict[str, float]:
    """Return the metrics that are not a loss, and so compare with other models."""
    return {name: value for name, value in find_evaluation(facts).items() if not name.endswith("loss")}


def _find_metrics(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of an evaluation, without those about its speed."""
    return {
        name.removeprefix("eval_"): value
        for name, value in entry.items()
        if name.startswith("eval_")
        and isinstance(value, (int, float))
        and math.isfinite(value)
        and not name.endswith(_SPEED_METRICS)
    }


def _format_title(name: str) -> str:
    """Return a name as a title.

    >>> _format_title("text-classification"), _format_title("eval_f1")
    ('Text Classification', 'Eval F1')
    """
    return name.replace("_", " ").replace("-", " ").title()


def _format_number(value: Any) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.4f}"
