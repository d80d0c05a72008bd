"""The worked cases run, in a shortened form, and do what their text says."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ostinato import JsonlCallback

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"case_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_find_the_rare_class() -> None:
    plain, weighted = load_example("class_weights").main(epochs=2)
    assert plain < 0.3 < 0.6 < weighted


def test_several_losses_are_in_the_log_and_add_up() -> None:
    log = load_example("several_losses").main(steps=40)
    lines = [line for line in log if "reconstruction" in line]
    assert len(lines) == 4
    for line in lines:
        assert line["loss"] == pytest.approx(line["reconstruction"] + line["divergence"] + line["sparsity"], rel=1e-5)
    assert any("eval_divergence" in line and "eval_code_size" in line for line in log)


def test_easy_rows_come_first() -> None:
    lengths = load_example("own_sampler").main(epochs=3)
    assert lengths == sorted(lengths) and lengths[0] + 1 < lengths[-1]


def test_both_ways_to_an_optimizer_learn() -> None:
    rates, shares = load_example("own_optimizer").main(steps=60)
    assert max(shares) < 0.8
    assert max(rates) > rates[-1]  # the schedule falls


def test_the_spread_is_larger_where_no_rows_were() -> None:
    inside, outside = load_example("own_evaluation_loop").main(epochs=4)
    assert outside > 1.5 * inside > 0


def test_numbers_are_in_the_sections() -> None:
    example = load_example("wandb_sections")

    class File(example.Sections, JsonlCallback):
        pass

    assert "test_loss" in example.main(tracker=File)
    lines = [json.loads(line) for line in Path("runs/wandb_sections/metrics.jsonl").read_text().splitlines()]
    names = {name for line in lines for name in line}
    assert {"validation/loss", "optimizer/learning_rate", "optimizer/grad_norm", "train/loss"} <= names
    assert not {name for name in names if name.startswith("eval")}


def test_the_body_is_frozen_then_trained() -> None:
    first_change, losses = load_example("freeze_then_thaw").main(frozen=10, steps=30)
    assert first_change == 11
    assert losses[-1] < losses[0]


def test_the_teacher_helps() -> None:
    taught, alone, distilled = load_example("distillation").main(epochs=3)
    assert taught > 0.85
    assert distilled > alone + 0.05


def test_predictions_are_in_units_of_the_data() -> None:
    found, (price, low, high) = load_example("own_prediction_step").main(epochs=4)
    assert 100_000 < low < price < high < 400_000
    assert found["eval_off_by"] < 60_000
    assert isinstance(price, np.floating)


def test_the_part_is_in_the_checkpoint_and_restored() -> None:
    first, both = load_example("checkpoint_part").main()
    assert int(first.sum()) == 320 and int(both.sum()) == 640
    assert bool(torch.all(both >= first))
    files = {path.name for path in Path("runs/checkpoint_part/checkpoint-40").iterdir()}
    assert {"classes.json", "callbacks.safetensors", "model.safetensors"} <= files


def test_every_case_of_the_page_is_a_file_that_is_run() -> None:
    page = (ROOT / "docs" / "worked-cases.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(\.\./examples/(\w+)\.py\)", page))
    tested = set(re.findall(r'load_example\("(\w+)"\)', Path(__file__).read_text("utf-8"))) | {"two_tower"}
    assert linked == tested  # two_tower is run in test_examples.py
