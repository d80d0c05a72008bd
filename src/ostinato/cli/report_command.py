"""Write a report page of a run, or one that compares several, from their journals.

  ostinato report out                      writes out/report.html
  ostinato report out --out page.html
  ostinato report baseline changed         writes comparison.html here, and prints where the runs first differ
  ostinato report out --run ID --run ID    compares two runs of one directory
  ostinato report out                      of a search: writes out/search/report.html, with all its trials

A run is named by its output_dir or by its events.jsonl. Only the journal is read, so a copy of it on another machine
is enough, and a run in progress is not disturbed. The pages need no network. For a run without a journal, such as one
of transformers, the page shows what is logged in the trainer_state.json of its last checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SUMMARY = "write a report page of a run, or one that compares several"
NOTHING_TO_REPORT = 2
COMPARISON = "comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the output_dir of a run, or its events.jsonl")
    parser.add_argument("--out", metavar="FILE", help="where to write the page")
    parser.add_argument(
        "--run",
        metavar="ID",
        action="append",
        help="the run to report, if a journal holds several; by default the last. Several are compared",
    )


def run(options: argparse.Namespace) -> int:
    """Return the exit code: 2 if a journal is missing or holds no run, 1 if the page cannot be written."""
    from ..journal.study_record import find_study_path  # noqa: PLC0415
    from ..report import compare, journal_reader, run_page  # noqa: PLC0415

    if len(options.runs) == 1 and not options.run and find_study_path(options.runs[0]) is not None:
        return _report_study(options.runs[0], options.out)
    ids = options.run or [None] * len(options.runs)
    places = options.runs * len(ids) if len(options.runs) == 1 else options.runs
    if len(places) > compare.MAX_RUNS:
        return _refuse(f"at most {compare.MAX_RUNS} runs can be compared, not {len(places)}")
    if len(ids) != len(places):
        return _refuse(f"{len(places)} journals with {len(ids)} --run options: pass one for each, or none")
    try:
        records = [journal_reader.read_run(place, run_id) for place, run_id in zip(places, ids, strict=True)]
        lines = []
        if len(records) == 1:
            path = Path(options.out) if options.out else run_page.choose_page_path(places[0])
            text = run_page.render_run(records[0])
        else:
            path, differences = Path(options.out or COMPARISON), compare.find_differences(records)
            text = compare.render_comparison(records, differences)
            lines.extend(compare.summarize_comparison(records, differences))
    except journal_reader.JournalError as error:
        return _refuse(str(error))
    return _write(text, path, lines)


def _report_study(place: str, out: str | None) -> int:
    """Write the page of a search."""
    from ..journal.study_record import NoStudyError, read_study  # noqa: PLC0415
    from ..report import search_page  # noqa: PLC0415

    try:
        study = read_study(place)
    except NoStudyError as error:
        return _refuse(str(error))
    return _write(search_page.render_study(study), Path(out) if out else search_page.choose_study_page(place), [])


def _write(text: str, path: Path, lines: list[str]) -> int:
    from ..report import html  # noqa: PLC0415

    try:
        html.write_page(text, path)
    except OSError as error:
        print(
            f"ostinato: {path} could not be written: {error.strerror or error}; name another with --out",
            file=sys.stderr,
        )
        return 1
    print("\n".join([*lines, f"written: {path}"]))
    return 0


def _refuse(why: str) -> int:
    print(f"ostinato: {why}", file=sys.stderr)
    return NOTHING_TO_REPORT
