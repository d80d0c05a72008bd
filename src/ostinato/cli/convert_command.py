"""Write a copy of a checkpoint in the layout of the other library.

  ostinato convert out/checkpoint-500 for-transformers/checkpoint-500
  ostinato convert old/checkpoint-500 out/checkpoint-500 --to ostinato

The source is not changed. The target is written completely or not at all.
"""

from __future__ import annotations

import argparse

SUMMARY = "convert a checkpoint to the layout of transformers, or to that of Ostinato"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="the checkpoint: a directory checkpoint-N of a run")
    parser.add_argument("target", help="a directory that does not exist yet")
    parser.add_argument(
        "--to",
        choices=("ostinato", "transformers"),
        help="the layout to write; by default the one that the source does not have",
    )


def run(options: argparse.Namespace) -> int:
    from ..checkpoint.transformers.convert import convert  # noqa: PLC0415
    from ..checkpoint.transformers.detect import is_from_transformers  # noqa: PLC0415

    to = options.to or ("ostinato" if is_from_transformers(options.source) else "transformers")
    convert(options.source, options.target, to=to)
    print(f"written: {options.target} ({options.source} in the layout of {to})")
    return 0
