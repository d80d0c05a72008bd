"""Values of arguments that transformers takes and Ostinato refuses: each is in the table of `docs/differences.md`."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ostinato
from ostinato.arguments.argument import Declaration, get_declarations
from tests.support.apis import QUIET, Api
from tests.support.parity import run_both

pytest.importorskip("transformers")
PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
TITLE = "### Values that are refused"
NUMBERS = (-1, 0, 0.5, 2, float("inf"), float("nan"), "2")
WORDS = ("", "a word")
OTHERS = (None, True, ["a word"], {"key": 1})
MORE = {
    "accelerator_config": [
        {name: value}
        for name in (*(one.name for one in dataclasses.fields(ostinato.AcceleratorConfig)), "no such name")
        for value in (True, False, None, {"num_steps": 2}, {"sync_each_batch": True})
    ],
    "debug": ["underflow_overflow", "tpu_metrics_debug", ["underflow_overflow"]],
    "deepspeed": [{"zero_optimization": {"stage": 2}}],
    "fsdp": ["full_shard", "full_shard auto_wrap", True, ["full_shard"]],
    "fsdp_config": [{"version": 2}, {"min_num_params": 10}],
    "report_to": [
        [name] for name in ("azure_ml", "codecarbon", "dagshub", "flyte", "kubeflow", "tensorboard", "wandb")
    ],
    "warmup_steps": [0.1, 1.5],
}
BY_OTHER_CHECKS = {
    "accelerator_config",
    "debug",
    "fsdp",
    "logging_steps",
    "report_to",
}  # what they refuse is in no declaration
# What an argument needs so that it can be tried alone.
COMPANIONS = {
    "dataloader_persistent_workers": {"dataloader_num_workers": 1},
    "dataloader_prefetch_factor": {"dataloader_num_workers": 1},
    "dataloader_multiprocessing_context": {"dataloader_num_workers": 1},
    "eval_strategy": {"eval_steps": 5},
    "load_best_model_at_end": {"eval_strategy": "steps", "eval_steps": 5, "save_steps": 5},
    "save_strategy": {"metric_for_best_model": "loss", "eval_strategy": "steps", "eval_steps": 5},
    "lr_scheduler_type": {"eval_strategy": "steps", "eval_steps": 5},
    "optim": {"optim_target_modules": "all-linear"},
}


def list_values(name: str, annotation: Any) -> list[Any]:
    """Return values of every type for an argument: those of its own choices and enums, and others."""
    words = [word for one in list_types(annotation) for word in list_words(one)]
    return [*words, *NUMBERS, *WORDS, *OTHERS, *MORE.get(name, [])]


def list_types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in typing.get_args(annotation):
        yield from list_types(inner)


def list_words(one: Any) -> list[Any]:
    if isinstance(one, type) and issubclass(one, Enum):
        return [member.value for member in one]
    return [one] if isinstance(one, str) and typing.get_origin(one) is None else []


def list_trials() -> dict[str, list[Any]]:
    """Return the values to try of every argument that needs neither a file nor a device."""
    hints = typing.get_type_hints(ostinato.Seq2SeqTrainingArguments)
    enums: dict[str, Any] = {"optim": ostinato.OptimizerNames, "lr_scheduler_type": ostinato.SchedulerType}
    return {
        field.name: [
            *list_values(field.name, hints[field.name]),
            *(one.value for one in enums.get(field.name, ())),
            *(field.metadata.get("choices") or ()),
        ]
        for field in dataclasses.fields(ostinato.Seq2SeqTrainingArguments)
        if field.name not in ("output_dir", "generation_config", "use_cpu", "torch_compile_backend")
    }


TRIALS = list_trials()


def try_values(api: Api) -> dict[str, list[str]]:
    """Return the values of each argument that a library's constructor takes."""
    cls = api.Seq2SeqTrainingArguments
    return {name: [show(value) for value in values if takes(cls, name, value)] for name, values in TRIALS.items()}


def takes(cls: Any, name: str, value: Any) -> bool:
    try:
        cls(**{**QUIET, "output_dir": "out", **COMPANIONS.get(name, {}), name: value})
    except Exception:
        return False
    return True


def show(value: Any) -> str:
    return json.dumps(value)


class Row(NamedTuple):
    """A row of the page's table."""

    values: str
    why: str


def read_table() -> dict[str, Row]:
    """Return what the page says of each argument of which values are refused."""
    table = PAGE.read_text("utf-8").partition(TITLE)[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {name: Row(*cells[1:]) for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}


def describe(declaration: Declaration) -> str:
    """Return how the page says what an argument takes."""
    words = ", ".join(f"`{word}`" for word in declaration.choices or ())
    if declaration.unsupported is not None:
        return "any"
    if declaration.number is not None:
        return f"anything but {declaration.number}"
    if declaration.kind is not None:
        of = f" of {words}" if words else ""
        return f"anything but a {declaration.kind.__name__}{of}"
    return f"anything but {words}"


@pytest.fixture(scope="module")
def refused() -> dict[str, list[str]]:
    theirs, ours = run_both(try_values)
    found = {name: sorted({*theirs.result[name]} - {*ours.result[name]}) for name in theirs.result}
    return {name: values for name, values in found.items() if values}


def test_refused_values_are_on_the_page(refused: dict[str, list[str]]) -> None:
    table, declared = read_table(), get_declarations(ostinato.Seq2SeqTrainingArguments)
    unsupported = {name for name, one in declared.items() if one.unsupported is not None}
    assert set(table) == {*refused, *unsupported}
    for name in table.keys() - BY_OTHER_CHECKS:
        assert table[name].values == describe(declared[name]), name
        if (reason := declared[name].unsupported) is not None:
            assert table[name].why == reason.why


def test_refused_numbers_are_outside_of_the_range(refused: dict[str, list[str]]) -> None:
    for name, declaration in get_declarations(ostinato.Seq2SeqTrainingArguments).items():
        if declaration.number is not None and name not in BY_OTHER_CHECKS:
            assert not [value for value in map(json.loads, refused.get(name, [])) if value in declaration.number], name


def test_refused_settings_and_trackers_are_named(refused: dict[str, list[str]]) -> None:
    table = read_table()
    settings = {key for value in map(json.loads, refused["accelerator_config"]) for key in value}
    assert settings == set(re.findall(r"`(\w+)", table["accelerator_config"].values))
    trackers = {value[0] for value in map(json.loads, refused["report_to"]) if isinstance(value, list)} - {"a word"}
    assert trackers == set(re.findall(r"`(\w+)`", table["report_to"].values))
