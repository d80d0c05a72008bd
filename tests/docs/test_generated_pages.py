"""The pages that are made from the code are those that the code makes, and say something of everything."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from ostinato import Extras, OstinatoError, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from ostinato.arguments.renamed_arguments import OLD_ARGUMENTS
from tools.docs.error_page import build_pattern, find_errors
from tools.docs.hook_page import HOOKS, OVERRIDES, find_callers
from tools.docs.pages import GENERATED

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_the_page_is_current(name: str) -> None:
    if name.endswith(".svg") and sys.version_info < (3, 11):
        pytest.skip("older interpreters do not name methods in full")
    assert (DOCS / name).read_text("utf-8") == GENERATED[name](), "run `python -m tools.docs`"


def test_every_argument_has_an_entry_and_every_old_name_a_row() -> None:
    page = (DOCS / "argument-list.md").read_text("utf-8")
    names = [field.name for kind in (Seq2SeqTrainingArguments, Extras) for field in dataclasses.fields(kind)]
    assert [name for name in names if f"\n### `{name}`\n" not in page] == []
    assert [name for name in OLD_ARGUMENTS if f"| `{name}` |" not in page] == []
    assert page.count("- **Since** transformers") + page.count("- **Since** Ostinato") == len(names)


def test_every_hook_is_a_method_and_common_ones_are_there() -> None:
    names = [name for hooks in HOOKS.values() for name in hooks]
    assert [name for name in names if not callable(getattr(Trainer, name, None))] == []
    assert len(set(names)) == len(names)
    missing = {name for name, libraries in OVERRIDES.items() if len(libraries) > 1} - set(names)
    assert not missing


def test_every_method_of_ours_and_of_transformers_has_a_row() -> None:
    surface = json.loads((DOCS.parent / "tests/contract/data/surface.json").read_text("utf-8"))
    public = [name for name in dir(Seq2SeqTrainer) if not name.startswith("_")]
    hooks = [name for group in HOOKS.values() for name in group]
    page = (DOCS / "methods.md").read_text("utf-8")
    wanted = {*public, *hooks, *surface["methods_of_4"], *(n for n in surface["methods"] if not n.startswith("_"))}
    assert sorted(name for name in wanted if f"`{name}`" not in page) == []
    assert "|  |" not in page, "a method is not described"


def test_callers_are_found() -> None:
    assert "Trainer.training_step" in find_callers()["compute_loss"]
    assert find_callers()["training_step"] >= {"engine.loop.accumulate_gradients"}


def test_texts_that_a_function_is_given_to_raise_are_found() -> None:
    """Of a helper (`split.build_error`), of the constructor of an error, and with a single word of their own."""
    texts = {error.what for error in find_errors()}
    assert "…: there is no label …; the labels are …" in texts
    assert any("returned one tensor" in text for text in texts)
    assert "… is silent" in texts and "… has no …" in texts


def build_wrong_trainers() -> list[Callable[[], object]]:
    """Mistakes of different kinds, which are found in different packages."""
    net, rows = nn.Linear(2, 2), [{"x": [1.0, 2.0], "label": 0}]
    return [
        lambda: TrainingArguments("out", learnig_rate=1.0),
        lambda: TrainingArguments("out", bf16=True, fp16=True, use_cpu=True),
        lambda: Trainer(net, TrainingArguments("out", use_cpu=True), metrics=["acuracy"], eval_dataset=rows),
        lambda: Trainer(None, TrainingArguments("out", use_cpu=True)),
        lambda: Trainer(net, TrainingArguments("out", use_cpu=True)).train(),
        lambda: Trainer(net, TrainingArguments("out", use_cpu=True), train_dataset=rows).train("nowhere"),
        lambda: Trainer(net, TrainingArguments("out", use_cpu=True), train_dataset=[1, 2]).train(),
    ]


@pytest.mark.parametrize("number", range(7))
def test_an_error_is_on_the_page_with_its_words(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        build_wrong_trainers()[number]()
    except OstinatoError as error:
        found = error
    else:
        pytest.fail("this should be an error")
    words = str(getattr(found, "what", None) or found)
    assert any(build_pattern(one.what).search(words) for one in find_errors()), words
