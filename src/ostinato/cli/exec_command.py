"""Run a script that was written for transformers' Trainer on Ostinato's, unchanged.

  ostinato exec run_glue.py --model_name_or_path bert-base-cased --do_train ...
  ostinato exec --explain run_glue.py ...         explain its first batch instead of training
  ostinato exec --set isolate_rng=false train.py  other defaults for Ostinato's own arguments
  ostinato exec -m package.train ...              a module
  torchrun --nproc_per_node 2 -m ostinato exec train.py ...

Before the script starts, the names of transformers' trainer (Trainer, TrainingArguments, callbacks, collators, ...)
are replaced by Ostinato's wherever they are imported from, libraries included. `ostinato exec --list` shows them. The
words after the script's name are its own arguments. `import ostinato.dropin`, as the first line of a script, does the
same.
"""

from __future__ import annotations

import argparse
import os
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from .script_runner import (
    FORMATS,
    WRONG_COMMAND_LINE,
    describe_missing_script,
    refuse,
    report_on_program,
    run_module,
    run_script,
)

SUMMARY = "run a script written for transformers' Trainer on Ostinato's, unchanged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="explain one batch instead of training")
    parser.add_argument("--format", choices=FORMATS, default="text", help="the format of --explain")
    parser.add_argument(
        "--list", action="store_true", help="list the names of transformers that are replaced, and by what"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set the default of one of Ostinato's own arguments; may be repeated",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", nargs="?", help="a Python file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(options: argparse.Namespace) -> int:
    if options.list:
        return _print_names()
    if options.script is None:
        return refuse("no script is named: ostinato exec SCRIPT ARGUMENTS...", WRONG_COMMAND_LINE)
    script = Path(options.script)
    if not options.is_module and not script.is_file():
        return refuse(describe_missing_script(options.script), WRONG_COMMAND_LINE)
    if options.set and (wrong := _set_defaults(options.set)):
        return refuse(wrong, WRONG_COMMAND_LINE)

    from .. import dropin  # noqa: F401, PLC0415

    def start() -> int:
        if options.is_module:
            return run_module(options.script, options.arguments)
        return run_script(script, options.arguments)

    if not options.explain:
        return start()
    return report_on_program(
        start,
        options.script,
        lambda trainer: trainer.explain(),
        options.format,
        failed=lambda report: bool(report.mistakes),
    )


def _set_defaults(given: list[str]) -> str | None:
    """Set the defaults through the environment; return what is wrong with them, or None."""
    from ..arguments.env_defaults import VARIABLE, read_env_defaults  # noqa: PLC0415

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join([*([before] if before else []), *given])
    _, problems = read_env_defaults()
    if not problems:
        return None
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before
    return str(problems[0]).replace(VARIABLE, "--set")


def _print_names() -> int:
    from ..compat.name_map import list_rows  # noqa: PLC0415

    for module, rows in groupby(list_rows(), key=itemgetter(0)):
        print(module)
        for _, name, what in rows:
            print(f"  {name:<52} {what}")
        print()
    print("Every other name stays transformers' own.")
    return 0
