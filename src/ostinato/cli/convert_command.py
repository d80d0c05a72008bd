"""Write a copy of a checkpoint in the layout of the other library.

  ostinato convert out/checkpoint-500 for-transformers/checkpoint-500
  ostinato convert old/checkpoint-500 out/checkpoint-500 --to ostinato

The source is not changed; the target appears whole or not at all.
"""

from __future__ import annotations

import argparse

SUMMARY = "write a checkpoint in transformers' layout, or in ours"


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
    print(f"{options.target} holds {options.source} in the layout of {to}")
    return 0
