"""Explain one batch of a script's trainer: columns, batch, outputs, loss, metrics, and mistakes.

  ostinato explain train.py --learning_rate 1e-4
  ostinato explain --format json train.py > batch.json

The script runs unchanged until its first train(), evaluate() or predict(), which is not carried out. The words after
the script's name are its own arguments. Its output goes to standard error.
"""

from __future__ import annotations

import argparse

from .script_runner import add_script, report_on_script

SUMMARY = "explain one batch of a script's trainer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script(parser)


def run(options: argparse.Namespace) -> int:
    """Return the exit code: 1 if the batch fails."""
    return report_on_script(options, lambda trainer: trainer.explain(), failed=lambda report: bool(report.mistakes))
