"""Join the files that the processes of a sharded run wrote, as one process would have written them.

  ostinato consolidate out/checkpoint-500 whole/checkpoint-500
  ostinato consolidate out

Without a target, the checkpoint is replaced; of the directory of a run, the newest one is taken. Weights and the
optimizer's state stay as they are to the last bit. Any number of processes resumes from the result, as from the
source; other programs can read it.
"""

from __future__ import annotations

import argparse

SUMMARY = "join the files of a sharded checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a checkpoint, or the output_dir of a run")
    parser.add_argument("target", nargs="?", help="a directory that does not exist yet; by default the source's place")


def run(options: argparse.Namespace) -> int:
    from ..checkpoint.consolidation import consolidate  # noqa: PLC0415

    place, joined = consolidate(options.source, options.target)
    print(f"written: {place} ({', '.join(joined)})" if joined else f"{place} holds plain files already")
    return 0
