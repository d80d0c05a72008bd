"""An evaluation whose predictions are in a file: the same numbers and arrays, and an unchanged metric function."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from ostinato.evaluation.storage import scratch_file
from ostinato.evaluation.storage.disk_array import SpilledArray


class Outputs(nn.Module):
    """Returns what a test asks for, made of its inputs."""

    main_input_name = "x"

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.kind = kind

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = (x[..., None] * torch.arange(1.0, 6.0) * self.scale).sin()
        kinds: dict[str, Any] = {
            "one": {"logits": logits},
            "several": {"logits": logits, "hidden": (x, [x.long(), x > 0])},
            "nested": {"logits": {"a": logits, "b": {"c": x}}},
            "half": {"logits": logits.half(), "brain": logits.bfloat16()},
            "number": {"logits": logits, "mean": x.mean()},
        }
        return {"loss": logits.mean(), **kinds[self.kind]}


def rows(count: int = 11, *, ragged: bool = True) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    widths = [2 + (number // 3) % 3 if ragged else 4 for number in range(count)]
    return [{"x": torch.randn(width, generator=draw), "labels": torch.arange(width)} for width in widths]


def collate(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {
        "x": nn.utils.rnn.pad_sequence([row["x"] for row in batch], batch_first=True),
        "labels": nn.utils.rnn.pad_sequence([row["labels"] for row in batch], batch_first=True, padding_value=-100),
    }


def trainer_of(tmp_path: Path, kind: str = "one", compute_metrics: Any = None, **arguments: Any) -> Trainer:
    args = TrainingArguments(
        str(tmp_path), use_cpu=True, per_device_eval_batch_size=3, report_to="none", disable_tqdm=True, **arguments
    )
    return Trainer(Outputs(kind), args, data_collator=collate, compute_metrics=compute_metrics)


def described(tree: Any) -> Any:
    if isinstance(tree, dict):
        return type(tree), {name: described(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree), [described(value) for value in tree]
    return tree if tree is None else (tree.dtype, tree.shape, tree.tobytes())


def arrays(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, (dict, list, tuple)):
        return [one for child in (tree.values() if isinstance(tree, dict) else tree) for one in arrays(child)]
    return [tree]


@pytest.mark.parametrize("kind", ["one", "several", "nested", "half", "number"])
@pytest.mark.parametrize("ragged", [True, False], ids=["ragged", "even"])
@pytest.mark.parametrize("joined", [True, False], ids=["joined", "apart"])
def test_predictions_are_those_of_memory(kind: str, ragged: bool, joined: bool, tmp_path: Path) -> None:
    found = []
    for memory in (None, 0):
        seen: list[Any] = []

        def metrics(prediction: Any, seen: list[Any] = seen) -> dict[str, float]:
            seen.append([prediction.predictions, prediction.label_ids, prediction.inputs, prediction.losses])
            return {"rows": float(len(prediction.losses))}

        options = {"eval_do_concat_batches": joined, "include_for_metrics": ["inputs", "loss"]}
        trainer = trainer_of(tmp_path, kind, metrics, eval_memory_mb=memory, **options)
        predicted = trainer.predict(rows(ragged=ragged))
        assert predicted.metrics is not None
        numbers = [predicted.metrics[name] for name in ("test_loss", "test_rows")]
        found.append([numbers, described(list(predicted[:2])), described(seen[0])])
        in_files = {type(one) for one in arrays([predicted.predictions, predicted.label_ids])}
        assert in_files == {np.ndarray if memory is None else SpilledArray}
    assert found[0] == found[1]


def test_within_the_budget_arrays_are_ordinary(tmp_path: Path) -> None:
    predicted = trainer_of(tmp_path).predict(rows())
    assert type(predicted.predictions) is np.ndarray
    assert type(predicted.label_ids) is np.ndarray
    assert predicted.label_ids[0].tolist() == [0, 1, -100, -100]


def test_only_what_is_too_large_is_in_a_file(tmp_path: Path) -> None:
    data = [{"x": torch.ones(400), "labels": torch.arange(400)} for _ in range(200)]
    predicted = trainer_of(tmp_path, eval_memory_mb=1).predict(data)
    assert type(predicted.predictions) is SpilledArray  # 1.6 MB
    assert type(predicted.label_ids) is np.ndarray  # 0.64 MB
    predicted = trainer_of(tmp_path, eval_memory_mb=3).predict(data)
    assert type(predicted.predictions) is np.ndarray


def test_the_file_outlives_the_evaluation_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    handles = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    trainer = trainer_of(tmp_path, eval_memory_mb=0)
    logits = trainer.predict(rows()).predictions
    del trainer
    assert os.listdir(tmp_path / "scratch") == []
    assert logits.argmax(-1).shape == (11, 4)
    assert np.isfinite(logits).all()
    del logits
    if handles:
        assert len(os.listdir("/proc/self/fd")) <= handles


def test_an_unchanged_metric_function(tmp_path: Path) -> None:
    def metrics(prediction: Any) -> dict[str, float]:
        logits, labels = prediction
        shifted, targets = logits[:, :-1], labels[:, 1:].copy()
        mask = targets != -100
        targets[~mask] = 0
        odds = np.exp(shifted - shifted.max(-1, keepdims=True))
        odds /= odds.sum(-1, keepdims=True)
        likely = np.take_along_axis(odds, targets[..., None], axis=-1)[..., 0]
        return {
            "accuracy": (shifted.argmax(-1)[mask] == targets[mask]).mean(),
            "likelihood": -np.log(likely[mask]).mean(),
            "confidence": odds.max(),
        }

    results = [
        trainer_of(tmp_path, compute_metrics=metrics, eval_memory_mb=memory).evaluate(rows()) for memory in (None, 0)
    ]
    names = ("eval_loss", "eval_accuracy", "eval_likelihood", "eval_confidence")
    assert [results[0][name] for name in names] == [results[1][name] for name in names]


def test_a_full_disk_ends_the_evaluation_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    trainer = trainer_of(tmp_path, eval_memory_mb=0)
    monkeypatch.setattr(scratch_file.os, "write", full)
    with pytest.raises(scratch_file.SpillError, match="what the evaluation keeps does not fit under"):
        trainer.predict(rows())


def test_rows_of_a_stream_are_not_counted_ahead(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows())

    plain, filed = (trainer_of(tmp_path, eval_memory_mb=memory).predict(Stream()) for memory in (None, 0))
    assert described(list(plain[:2])) == described(list(filed[:2]))
    assert type(filed.predictions) is SpilledArray


@pytest.mark.parametrize("wrong", [-1, "many"])
def test_a_budget_is_a_number(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="eval_memory_mb"):
        trainer_of(tmp_path, eval_memory_mb=wrong)
