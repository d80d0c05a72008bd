"""Show what a script's train() will do, and which argument changes what; nothing is trained.

  ostinato plan train.py
  ostinato plan --format markdown train.py --num_train_epochs 5
  ostinato plan --nproc 8 --nnodes 2 train.py      the memory that each of so many processes would need
  ostinato plan --nproc 8 --shard full train.py

The script runs unchanged until its first train(), evaluate() or predict(), which is not carried out. The words after
the script's name are its own arguments. Its output goes to standard error.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .script_runner import WRONG_COMMAND_LINE, add_script, read_count, refuse, report_on_script

if TYPE_CHECKING:
    from ..diagnostics.memory_plan import MemoryPlan
    from ..trainer import Trainer

SUMMARY = "show what a script's train() will do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nproc", type=read_count, help="show memory instead: for so many processes on each host")
    parser.add_argument("--nnodes", type=read_count, default=1, help="hosts, with --nproc (default 1)")
    parser.add_argument(
        "--shard",
        choices=("none", "full", "hybrid"),
        help="how the model is divided, with --nproc (default: all ways)",
    )
    add_script(parser)


def run(options: argparse.Namespace) -> int:
    if options.nproc is None:
        if options.shard is not None or options.nnodes > 1:
            return refuse(
                "--shard and --nnodes need --nproc, the number of processes on each host", WRONG_COMMAND_LINE
            )
        return report_on_script(options, lambda trainer: trainer.plan())
    return report_on_script(options, lambda trainer: _plan_memory(trainer, options))


def _plan_memory(trainer: Trainer, options: argparse.Namespace) -> MemoryPlan:
    from ..diagnostics.plan_builder import build_memory_plan  # noqa: PLC0415

    return build_memory_plan(trainer, per_host=options.nproc, hosts=options.nnodes, shard=options.shard)
