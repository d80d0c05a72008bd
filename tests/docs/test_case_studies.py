"""The case studies run: a script in the style of 2023 by `ostinato exec`, and p-tuning, also resumed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import TrainingArguments, set_seed
from ostinato.cli import main

ROOT = Path(__file__).parents[2]
CASES = ROOT / "examples" / "cases"


def read_commands(page: str) -> list[list[str]]:
    """The words after `ostinato` of the commands of a page."""
    text = (ROOT / "docs" / page).read_text("utf-8").replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(r"^ostinato .*$", text, re.M)]


def test_the_commands_of_the_glue_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("transformers")
    (script, recipe) = read_commands("cases/glue.md")
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "ostinato", "exec", str(ROOT / script[1]), *script[2:]],
        env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "tokenizer= is now processing_class=" in done.stderr
    out = tmp_path / "sample" / "out"
    assert json.loads((out / "eval_results.json").read_text())["eval_accuracy"] > 0.9
    assert json.loads((out / "trainer_state.json").read_text())["global_step"] == 152  # as the page says
    predictions = (out / "predict_results.txt").read_text().splitlines()
    assert len(predictions) == 41 and {line.split("\t")[1] for line in predictions[1:]} <= {"0", "1"}
    assert (out / "report.html").is_file()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    assert main(recipe) == 0
    assert json.loads((tmp_path / "sample/recipe/eval_results.json").read_text())["eval_accuracy"] > 0.9
    assert len((tmp_path / "sample/recipe/predictions.jsonl").read_text().splitlines()) == 40


@pytest.fixture
def p_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("case_p_tuning", CASES / "p_tuning.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "case_p_tuning", module)  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


def test_the_prefix_learns_and_is_all_that_is_saved(p_tuning: Any) -> None:
    found = p_tuning.main(base_epochs=5, epochs=4)
    assert found["with prefix"] == found["loaded again"] > found["without prefix"] + 0.2
    assert found["bytes of the prefix"] < 0.05 * found["bytes of the model"]


def test_a_prefix_is_resumed_exactly(p_tuning: Any) -> None:
    rows = p_tuning.make_rows(64, p_tuning.repeat, seed=0)

    def train(steps: int, directory: str, resume: bool = False) -> torch.Tensor:
        set_seed(0)
        model = p_tuning.GLMForGeneration(p_tuning.GLMConfig(prefix_length=4))
        args = TrainingArguments(directory, max_steps=steps, save_steps=2, use_cpu=True, lr_scheduler_type="constant")
        trainer = p_tuning.PrefixTrainer(model, args, train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume, resume_mode="extend" if resume else "resume")
        return model.prefix_encoder.embedding.weight

    whole = train(4, "whole")
    train(2, "parts")
    files = {path.name for path in Path("parts/checkpoint-2").iterdir()}
    assert "prefix.safetensors" in files and "model.safetensors" not in files
    assert torch.equal(train(4, "parts", resume=True), whole)
