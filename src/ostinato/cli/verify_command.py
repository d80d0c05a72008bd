"""Check that a checkpoint, or all checkpoints in the directory of a run, are as they were written.

  ostinato verify out
  ostinato verify out/checkpoint-500 --json

Every byte is read and compared with the manifest; nothing is unpickled. The best model and the directories that were
moved aside for a later run are checked too. Checkpoints of transformers have no checksums: their files are opened to
see that they can be read. The exit code is 0 if all are whole, 1 if any is damaged, 2 if there is nothing to verify.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..checkpoint.verify import Verdict

SUMMARY = "verify a checkpoint, or all checkpoints of a run, against their checksums"
DAMAGED, NOTHING_TO_VERIFY = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", help="a checkpoint, or the output_dir of a run")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(options: argparse.Namespace) -> int:
    """Return the exit code: 1 if anything is damaged."""
    from ..checkpoint.verify import verify_run  # noqa: PLC0415
    from ..core.errors import CheckpointError  # noqa: PLC0415

    try:
        verdicts = verify_run(options.directory)
    except CheckpointError as error:
        print(f"ostinato: {error}", file=sys.stderr)
        return NOTHING_TO_VERIFY
    if options.json:
        print(json.dumps([_to_json(verdict, options.directory) for verdict in verdicts], indent=2))
    else:
        print(_format_table(verdicts, options.directory))
    return 0 if all(verdict.is_whole for verdict in verdicts) else DAMAGED


def _format_table(verdicts: list[Verdict], directory: str) -> str:
    from ..checkpoint.space import format_size  # noqa: PLC0415

    rows = []
    for verdict in verdicts:
        step = "" if verdict.step is None else f"step {verdict.step}"
        found = [verdict.remark] if verdict.is_whole else [f"DAMAGED  {one.why}" for one in verdict.damage]
        rows += [
            (_format_name(verdict, directory), step, format_size(verdict.size), one) if first else ("", "", "", one)
            for first, one in zip([True, *[False] * len(found)], found, strict=False)
        ]
    name, step, size = (max(len(row[column]) for row in rows) for column in range(3))
    lines = [f"{row[0]:{name}}  {row[1]:{step}}  {row[2]:>{size}}  {row[3]}" for row in rows]
    damaged = sum(not verdict.is_whole for verdict in verdicts)
    counted = f"{len(verdicts)} checkpoint{'' if len(verdicts) == 1 else 's'}"
    return "\n".join([*lines, f"{counted}: {f'{damaged} damaged' if damaged else 'nothing is damaged'}"])


def _format_name(verdict: Verdict, directory: str) -> str:
    return verdict.path.name if verdict.path == Path(directory) else str(verdict.path.relative_to(directory))


def _to_json(verdict: Verdict, directory: str) -> dict[str, Any]:
    return {
        "name": _format_name(verdict, directory),
        "step": verdict.step,
        "bytes": verdict.size,
        "whole": verdict.is_whole,
        "remark": verdict.remark,
        "damage": [{"file": one.file, "why": one.why} for one in verdict.damage],
    }
