"""Journeys on file: what `trainer.explain()` says of six pairs of model and data, and of the commonest mistakes.

Numbers of a loss are compared closely, not letter by letter: they come from another machine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.support.apis import load_library
from tests.support.explain_cases import MISTAKES, PAIRS

pytest.importorskip("transformers")
load_library("transformers")

ON_FILE = Path(__file__).parent / "explain"
LOSS = re.compile(r"([\d.]+) for\s+this batch")
WIDTH = 100


def render_report(name: str, directory: Path) -> str:
    return str({**PAIRS, **MISTAKES}[name](directory).explain())


def test_every_journey_is_on_file() -> None:
    assert {path.stem for path in ON_FILE.glob("*.txt")} == {*PAIRS, *MISTAKES}


@pytest.mark.parametrize("name", [*PAIRS, *MISTAKES])
def test_journey(name: str, tmp_path: Path, place: torch.device) -> None:
    text, kept = render_report(name, tmp_path), (ON_FILE / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
    if place.type == "cpu":
        assert LOSS.sub("LOSS", text) == LOSS.sub("LOSS", kept)
    else:  # its name is in the text, whose lines break elsewhere
        assert LOSS.sub("LOSS", text).replace(str(place), "cpu").split() == LOSS.sub("LOSS", kept).split()
    assert [float(one) for one in LOSS.findall(text)] == pytest.approx(list(map(float, LOSS.findall(kept))), rel=1e-2)


@pytest.mark.parametrize("name", [*PAIRS, *MISTAKES])
def test_lines_are_short(name: str) -> None:
    lines = (ON_FILE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("name", PAIRS)
def test_a_sound_pair_has_no_findings(name: str, tmp_path: Path) -> None:
    journey = PAIRS[name](tmp_path).explain()
    assert journey.findings == ()
    assert None not in (journey.data, journey.batch, journey.call, journey.outputs, journey.loss, journey.evaluation)


# What a mistake is called, and how to mend it: words that must be there.
NAMED = {
    "labels_under_another_name": ("did not return a loss", "rename 'target' to 'labels'"),
    "no_column_left": ("looks like raw text", "tokenizer(row"),
    "labels_out_of_range": ("label 3 in column 'labels' is out of range", "num_labels=4"),
    "floats_for_classes": ("labels are floats", "convert them to integers"),
    "language_model_without_labels": ("did not return a loss", "DataCollatorForLanguageModeling"),
    "labels_shifted_twice": ("already shifted by one position", "copy of input_ids"),
    "ragged_without_padding": ("different lengths", "DataCollatorWithPadding"),
    "tokens_beyond_the_table": ("token 40 in column 'input_ids'", "resize_token_embeddings"),
    "tokenizer_larger_than_the_model": ("has 42 tokens", "resize_token_embeddings"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, tmp_path: Path) -> None:
    (finding,) = MISTAKES[name](tmp_path).explain().findings
    what, fix = NAMED[name]
    assert what in finding.what
    assert fix in finding.fix
    assert finding.certain is (name not in ("labels_shifted_twice", "tokenizer_larger_than_the_model"))
