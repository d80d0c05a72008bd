"""Search the arguments of a script, or of a task, with Optuna or Ray Tune.

  ostinato search train.py --space space.yaml --trials 50
  ostinato search train.py --space space.yaml --direction maximize --objective f1 -- --output_dir out --seed 7
  ostinato search train.py --space space.yaml --plan            what would be tried, and how long a trial takes
  ostinato train text-classification --sample --search space.yaml --trials 8

The space is a file with one line per argument:

  learning_rate: {low: 1.0e-5, high: 1.0e-3, log: true}
  num_train_epochs: {low: 1, high: 4}
  optim: [adamw_torch, adafactor]

The script runs unchanged until its trainer starts to train, as with `ostinato exec`; the search takes the place of
that call, and the script ends with it. If the trainer has no model_init, every trial begins with a copy of its model.
What follows `--` are the script's own options. A search that was stopped goes on when it is started again, and several
that are started beside one another share their trials. `ostinato report OUTPUT_DIR` shows the result.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .script_runner import WRONG_COMMAND_LINE, describe_missing_script, refuse, run_script
from .search_options import add_search_options, run_search

SUMMARY = "search the arguments of a script with Optuna or Ray Tune"
TAKES_SCRIPT_OPTIONS = True  # what follows `--` is the script's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", help="a Python file that builds a Trainer and calls its train()")
    parser.add_argument("--space", required=True, metavar="FILE", help="the search space, as YAML or JSON")
    add_search_options(parser)
    parser.set_defaults(arguments=[])


def run(options: argparse.Namespace) -> int:
    script = Path(options.script)
    if not script.is_file():
        return refuse(describe_missing_script(options.script), WRONG_COMMAND_LINE)
    from .. import dropin  # noqa: F401, PLC0415

    return run_search(lambda: run_script(script, options.arguments), str(script), options.space, options)
