"""Metrics as people read them, and as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ostinato.core import metrics_text
from tests.support import tiny
from tests.support.apis import Api, guest

METRICS = {
    "train_runtime": 3725.678,
    "eval_runtime": 0.004,
    "init_mem_cpu_alloc_delta": 5 * 2**20 + 17,
    "total_flos": 5 * 2**30 + 1.0,
    "train_loss": 0.123456789,
    "epoch": 3.0,
    "train_samples": 1000,
    "eval_accuracy": 0.99999,
}


def test_readable_values() -> None:
    readable = metrics_text.metrics_format(METRICS)
    assert readable["train_runtime"] == "1:02:05.67"
    assert readable["eval_runtime"] == "0:00:00.00"
    assert readable["init_mem_cpu_alloc_delta"] == "5MB"
    assert readable["total_flos"] == "5GF"
    assert readable["train_loss"] == 0.1235
    assert readable["train_samples"] == 1000
    assert METRICS["train_loss"] == 0.123456789


def test_combined_file_gathers(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    metrics_text.write_metrics(folder, "train", {"train_loss": 1.0, "epoch": 1.0}, combined=True)
    metrics_text.write_metrics(folder, "eval", {"eval_loss": 2.0, "epoch": 2.0}, combined=True)
    metrics_text.write_metrics(folder, "test", {"test_loss": 3.0}, combined=False)
    assert json.loads((folder / "all_results.json").read_text()) == {"train_loss": 1.0, "eval_loss": 2.0, "epoch": 2.0}
    assert json.loads((folder / "test_results.json").read_text()) == {"test_loss": 3.0}


def test_same_text_and_files_as_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    said, files, readable = {}, {}, {}
    for name in ("transformers", "ostinato"):
        with guest(name):
            api = Api(name, tmp_path / name)
            trainer = api.trainer(tiny.regression(), api.args())
            capsys.readouterr()
            readable[name] = type(trainer).metrics_format(dict(METRICS))
            trainer.log_metrics("train", dict(METRICS))
            trainer.log_metrics("eval", {"eval_loss": 0.5})
            said[name] = capsys.readouterr().out
            api.output_dir.mkdir(exist_ok=True)
            trainer.save_metrics("train", dict(METRICS))
            trainer.save_metrics("eval", {"eval_loss": 0.5})
            trainer.save_metrics("test", {"test_loss": 0.5}, combined=False)
            files[name] = {path.name: path.read_text() for path in api.output_dir.glob("*.json")}
    assert readable["ostinato"] == readable["transformers"]
    assert said["ostinato"] == said["transformers"]
    assert files["ostinato"] == files["transformers"]
    assert set(files["ostinato"]) == {
        "train_results.json",
        "eval_results.json",
        "test_results.json",
        "all_results.json",
    }


@pytest.mark.parametrize("damaged", ["", '{"eval_loss": 0.', "[1, 2]", "\xff"])
def test_damaged_results_are_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str) -> None:
    path = tmp_path / "all_results.json"
    path.write_bytes(damaged.encode("latin-1"))
    metrics_text.write_metrics(tmp_path, "eval", {"eval_loss": 0.5}, combined=True)
    metrics_text.write_metrics(tmp_path, "train", {"train_loss": 1.5}, combined=True)
    assert json.loads(path.read_text()) == {"eval_loss": 0.5, "train_loss": 1.5}
    assert capsys.readouterr().err.count("all_results.json holds no readable results") == 1
