"""Recipes run beside plain programs of transformers, and apart: what they log, and the weights they end with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.support import launcher

_TIMED = ("_runtime", "_per_second")


def logged(trainer: Any) -> list[dict[str, Any]]:
    """What a trainer has logged, but for times."""
    return [
        {name: value for name, value in entry.items() if not name.endswith(_TIMED)}
        for entry in trainer.state.log_history
    ]


def measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics without times and without what only scripts add."""
    return {
        name: value for name, value in metrics.items() if not name.endswith((*_TIMED, "_samples")) and name != "epoch"
    }


def assert_same_run(ours: Any, theirs: Any) -> None:
    """Every loss, gradient norm, rate and metric, and every weight, to the last bit."""
    assert logged(ours) == logged(theirs)
    mine, other = ours.model.state_dict(), theirs.model.state_dict()
    assert list(mine) == list(other)
    different = [name for name in mine if not torch.equal(mine[name], other[name])]
    assert not different


def run_apart(program: str, words: Sequence[str], shelf: Path, imports: Sequence[str], processes: int = 1) -> Any:
    """Run a program in processes of their own, which begin with what every task imports."""
    Path("program.py").write_text(program)
    environment = {"HF_DATASETS_CACHE": str(shelf), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    path, imports = Path("program.py").absolute(), (*launcher.MOST, "datasets", *imports)
    return launcher.run(path, *words, processes=processes, imports=imports, **environment)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def save_bert(tokenizer: Any, directory: Path, **more: Any) -> str:
    """A directory with a BERT of 16 units and its tokenizer."""
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        pad_token_id=tokenizer.pad_token_id,
        **more,
    )
    transformers.set_seed(3)
    transformers.BertModel(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def plain_arguments(learning_rate: float, kind: Any = transformers.TrainingArguments, **more: Any) -> Any:
    """What a plain program trains by: batches of eight, every loss logged, nothing else done."""
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    common = {"per_device_train_batch_size": 8, "logging_steps": 1, "learning_rate": learning_rate, "seed": 7}
    return kind("theirs", **{**quiet, **common, **more})
