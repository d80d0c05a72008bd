"""The case studies run: a script in the style of 2023 by `ostinato exec`, and p-tuning, also resumed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import TrainingArguments, set_seed

ROOT = Path(__file__).parents[2]
CASES = ROOT / "examples" / "cases"


def test_the_script_runs_by_exec(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("transformers")
    files = ["--train_file", "s/train.json", "--validation_file", "s/dev.json", "--test_file", "s/test.json"]
    steps = ["--do_train", "--do_eval", "--do_predict", "--max_steps", "60", "--learning_rate", "3e-3"]
    options = ["--make_sample", "s", "--output_dir", "out", "--evaluation_strategy", "epoch", *files, *steps]
    done = subprocess.run(
        [sys.executable, "-m", "ostinato", "exec", str(CASES / "glue_style.py"), *options],
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "tokenizer= is now processing_class=" in done.stderr
    assert json.loads((tmp_path / "out" / "eval_results.json").read_text())["eval_accuracy"] > 0.7
    predictions = (tmp_path / "out" / "predict_results.txt").read_text().splitlines()
    assert len(predictions) == 41 and {line.split("\t")[1] for line in predictions[1:]} <= {"0", "1"}
    assert (tmp_path / "out" / "report.html").is_file()


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
