"""Samples: generated rows, few enough to run a whole recipe within a minute, without the network.

One file for each task, named after it, with `write_sample(directory) -> Sample`. What they share is in `sentences.py`,
and in `unigrams.py` for language models.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ostinato import ConfigError

VOCABULARY = 500  # pieces of the tokenizer that is trained for a tiny model


@dataclass(frozen=True)
class Sample:
    """The command that `--sample` runs over the files just written, and the result to expect of it.

    `baseline` is the value of the metric without any learning, which the run should exceed; with
    `lower_is_better`, stay below.
    """

    words: Sequence[str]
    metric: str
    baseline: float
    meaning: str  # of the baseline: "always guessing the most frequent label"
    lower_is_better: bool = False

    def is_beaten_by(self, metrics: Mapping[str, float]) -> bool:
        """Tell whether something was learned: whether the metrics are better than the baseline.

        Args:
            metrics: The metrics of a run, by name.

        Returns:
            True if they are better.
        """
        value = metrics[self.metric]
        return value < self.baseline if self.lower_is_better else value > self.baseline


def write_task_sample(task: str, directory: Path) -> Sample:
    """Write the sample of a task into a directory, and return it with the command that runs it."""
    module = f"{__name__}.{task.replace('-', '_')}_sample"
    try:
        write_sample = import_module(module).write_sample
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigError(
            what=f"the task {task!r} has no sample", why=f"there is no module {module}", fix="name files of rows"
        ) from None
    directory.mkdir(parents=True, exist_ok=True)
    return write_sample(directory)


def build_command(files: Mapping[str, str], *options: str) -> list[str]:
    """Return the words of a command over the files of some splits.

    >>> build_command({"train": "rows.jsonl"}, "--do_train --seed 1")
    ['--train_file', 'rows.jsonl', '--do_train', '--seed', '1']
    """
    named = [word for split, file in files.items() for word in (f"--{split}_file", file)]
    return [*named, *shlex.split(" ".join(options))]


def build_tiny_model_options(model_type: str, **others: float) -> str:
    """Return the options for a new model that learns within seconds on one core, and for a tokenizer trained for it.

    >>> build_tiny_model_options("t5", d_model=64)
    '--model_type t5 --train_tokenizer --vocab_size 500 --config_overrides d_model=64'
    """
    return f"--model_type {model_type} --train_tokenizer --vocab_size {VOCABULARY} --config_overrides " + ",".join(
        f"{name}={value}" for name, value in others.items()
    )


def build_tiny_bart_options() -> str:
    """Return the options for a new encoder-decoder model.

    So narrow a model needs larger initial weights than usual; otherwise it takes long to learn where to attend.
    """
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 128}.items()
    }
    return build_tiny_model_options("bart", d_model=64, **sides, max_position_embeddings=64, dropout=0.0, init_std=0.1)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as JSON Lines, unless the file has them already: an unchanged file keeps its cache."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return str(path)
