"""Make a page of a run, or one that compares several, from their journals.

  ostinato report out                      writes out/report.html
  ostinato report out --out page.html
  ostinato report baseline changed         writes comparison.html here, and says where they part

A run is named by its output_dir or by its events.jsonl. Nothing but the journal is read, so a copy of it on another
machine will do, and a run that is still going on is not disturbed. The pages need no network. Of a run without a
journal, such as one of transformers, what is logged in the trainer_state.json of its last checkpoint is shown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SUMMARY = "make a page of a run, or one that compares several"
NOTHING_TO_REPORT = 2
COMPARISON = "comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the output_dir of a run, or its events.jsonl")
    parser.add_argument("--out", metavar="FILE", help="where to write the page")
    parser.add_argument("--run", metavar="ID", help="which run, if a journal tells of several; the last by default")


def run(options: argparse.Namespace) -> int:
    """2 if a journal is missing or tells nothing, 1 if the page cannot be written."""
    from ..report import compare, page, parts, reading  # noqa: PLC0415

    if len(options.runs) > compare.MOST:
        print(
            f"ostinato: at most {compare.MOST} runs can be compared, and {len(options.runs)} are named",
            file=sys.stderr,
        )
        return NOTHING_TO_REPORT
    try:
        records = [reading.read_run(place, options.run if len(options.runs) == 1 else None) for place in options.runs]
        if len(records) == 1:
            path = Path(options.out) if options.out else page.page_path(options.runs[0])
            text = page.render(records[0])
        else:
            path, parted = Path(options.out or COMPARISON), compare.partings(records)
            text = compare.render_comparison(records, parted)
            print("\n".join(compare.summary(records, parted)))
    except reading.JournalError as error:
        print(f"ostinato: {error}", file=sys.stderr)
        return NOTHING_TO_REPORT
    try:
        parts.write_page(text, path)
    except OSError as error:
        print(
            f"ostinato: {path} could not be written: {error.strerror or error}; --out names another", file=sys.stderr
        )
        return 1
    print(f"written: {path}")
    return 0
