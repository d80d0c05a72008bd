"""Show what a script's train() will do, and which argument changes what; nothing is trained.

  ostinato plan train.py
  ostinato plan --format markdown train.py --num_train_epochs 5

The script runs unchanged until its first train(), evaluate() or predict(), which is not carried out. The words after
the script's name are its own arguments. Its output goes to standard error.
"""

from __future__ import annotations

import argparse

from .script_runner import add_script, report_on_script

SUMMARY = "show what a script's train() will do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script(parser)


def run(options: argparse.Namespace) -> int:
    return report_on_script(options, lambda trainer: trainer.plan())
