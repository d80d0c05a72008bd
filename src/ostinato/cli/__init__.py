"""Command line: `ostinato COMMAND ...`. One file for each command; what a command needs is imported when it runs.

A command is a module with `SUMMARY`, a line; `add_arguments(parser)`; and `run(options)`, which returns the exit code:
0 for success, 1 for a failure, 2 for a wrong command line, 3 for a script that never starts a trainer.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import ostinato

from ..core.errors import OstinatoError
from . import (
    consolidate_command,
    convert_command,
    exec_command,
    explain_command,
    generate_command,
    launch_command,
    plan_command,
    report_command,
    search_command,
    train_command,
    verify_command,
)

COMMANDS: dict[str, ModuleType] = {
    "consolidate": consolidate_command,
    "convert": convert_command,
    "exec": exec_command,
    "explain": explain_command,
    "generate": generate_command,
    "launch": launch_command,
    "plan": plan_command,
    "report": report_command,
    "search": search_command,
    "train": train_command,
    "verify": verify_command,
}
WRONG_COMMAND_LINE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    >>> main(["plann"])  # doctest: +SKIP
    ostinato: there is no command 'plann'; did you mean 'plan'?
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _build_parser()
    unknown = next((word for word in given if not word.startswith("-")), None) if given else None
    if unknown is not None and unknown not in COMMANDS:
        print(_describe_unknown_command(unknown), file=sys.stderr)
        return WRONG_COMMAND_LINE
    words, rest = _split_script_options(given)
    try:
        options = parser.parse_args(words)
    except SystemExit as end:  # argparse has printed the error, or the help
        return int(end.code or 0)
    if rest is not None:
        options.arguments = rest
    if options.command is None:
        parser.print_help()
        return WRONG_COMMAND_LINE
    try:
        code = COMMANDS[options.command].run(options)
        sys.stdout.flush()  # here, where a closed pipe is handled
        return code
    except BrokenPipeError:  # `ostinato report a b | head -1`
        if options.command == "exec":  # errors of a script are not caught
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        return 0
    except OstinatoError as error:
        print(f"ostinato: {error}", file=sys.stderr)
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("ostinato", description="A re-implementation of the Trainer API of transformers.")
    parser.add_argument("--version", action="version", version=f"ostinato {ostinato.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        about = (command.__doc__ or "").strip()
        own = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(own)
    return parser


def _split_script_options(given: list[str]) -> tuple[list[str], list[str] | None]:
    """Return the words before and after `--`, for a command whose script has options of its own."""
    takes = given and getattr(COMMANDS.get(given[0]), "TAKES_SCRIPT_OPTIONS", False)
    if not takes or "--" not in given:
        return given, None
    cut = given.index("--")
    return given[:cut], given[cut + 1 :]


def _describe_unknown_command(word: str) -> str:
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
    return f"ostinato: there is no command {word!r}; {hint}"
