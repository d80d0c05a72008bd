"""Train a model for a task, with the flags of transformers' example scripts.

  ostinato train text-classification --sample            an example that takes less than a minute, offline
  ostinato train glue --task_name mrpc --model_name_or_path bert-base-cased --do_train --do_eval --output_dir out
  ostinato train text-classification --train_file train.csv --validation_file dev.csv --do_train --do_eval ...
  ostinato train text-classification --config run.yaml --learning_rate 1e-4
  ostinato train text-classification --plan ...          show what would happen; nothing is trained
  ostinato train text-classification --search space.yaml --trials 20 ...      search arguments, see ostinato search
  ostinato train text-classification --help              every flag, by subject
  torchrun --nproc_per_node 2 -m ostinato train ...

`ostinato train` alone lists the tasks. Every name of an example script (glue, run_ner.py, swag, ...) is accepted too.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from ..core.errors import OstinatoError
from .script_runner import TrainerStarted
from .search_options import add_search_options, run_search

WRONG_COMMAND_LINE = 2
SUMMARY = "train a model for a task: classification, question answering, translation, ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="the task; without one, the tasks are listed")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the flags of the task: TASK --help lists them")


def run(options: argparse.Namespace) -> int:
    from ..tasks.command import parse_command, run_command  # noqa: PLC0415

    if options.task is None:
        return _print_tasks()
    search, words = _split_search(options.arguments)
    try:
        request = parse_command(options.task, words)
    except SystemExit as end:  # --help, or argparse has printed what is wrong
        return int(end.code or 0)
    except OstinatoError as error:
        print(f"ostinato: {error}", file=sys.stderr)
        return WRONG_COMMAND_LINE
    if search is None:
        run_command(request)
        return 0
    return run_search(lambda: _run(request), f"ostinato train {options.task}", search.search, search)


def _split_search(words: list[str]) -> tuple[argparse.Namespace | None, list[str]]:
    """Return the options of a search and the words of the task; None if nothing is searched."""
    if not any(word == "--search" or word.startswith("--search=") for word in words):
        return None, words
    parser = argparse.ArgumentParser("ostinato train", add_help=False, allow_abbrev=False)
    parser.add_argument("--search", required=True)
    add_search_options(parser)
    return parser.parse_known_args(words)


def _run(request: Any) -> int:
    from ..tasks.command import run_command  # noqa: PLC0415

    with contextlib.suppress(TrainerStarted):
        run_command(request)
    return 0


def _print_tasks() -> int:
    from ..tasks import ALIASES, RECIPES, find_recipe  # noqa: PLC0415

    width = max(map(len, RECIPES)) + 2
    for name in RECIPES:
        also = ", ".join(alias for alias, task in ALIASES.items() if task == name)
        print(f"{name:<{width}}{find_recipe(name).summary}")
        if also:
            print(f"{'':<{width}}also: {also}")
    print("\nostinato train TASK --sample runs an example; ostinato train TASK --help lists its flags.")
    return 0
