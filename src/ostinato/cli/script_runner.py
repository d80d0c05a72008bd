"""Runner for a user's script: it runs unchanged until its trainer starts, and a report is printed instead."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..diagnostics.render import Printable
    from ..trainer import Trainer

FORMATS = ("text", "markdown", "json")
STARTING_METHODS = ("train", "evaluate", "predict", "hyperparameter_search")
FAILED, WRONG_COMMAND_LINE, NEVER_STARTED = 1, 2, 3
_TRANSFORMERS_TRAINERS = {"Trainer", "Seq2SeqTrainer"}


class TrainerStarted(BaseException):
    """Raised when the script's trainer starts. Not an `Exception`: scripts catch those and continue."""


def add_script(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that runs a script."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="text by default, in colours on a terminal")
    parser.add_argument("script", help="a Python file that builds an ostinato Trainer and starts it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def read_count(word: str) -> int:
    """Read a number of processes or hosts from the command line."""
    return read_number(word, 1)


def read_number(word: str, smallest: int = 0) -> int:
    """Read a whole number from the command line."""
    if not word.isdecimal() or int(word) < smallest:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least {smallest}")
    return int(word)


def report_on_script(
    options: argparse.Namespace,
    build_report: Callable[[Trainer], Printable],
    *,
    failed: Callable[[Any], bool] = lambda report: False,
) -> int:
    """Run the script until its trainer starts, and print the report that `build_report` returns."""
    script = Path(options.script)
    if not script.is_file():
        return refuse(describe_missing_script(options.script), WRONG_COMMAND_LINE)
    if _uses_transformers(script):
        return refuse(
            f"{script} uses transformers' Trainer, which would train: write `from ostinato import Trainer`, or run "
            f"the unchanged script with `ostinato exec --explain {script}`",
            WRONG_COMMAND_LINE,
        )
    return report_on_program(
        lambda: run_script(script, options.arguments), str(script), build_report, options.format, failed=failed
    )


def report_on_program(
    start: Callable[[], int],
    name: str,
    build_report: Callable[[Trainer], Printable],
    form: str,
    *,
    failed: Callable[[Any], bool] = lambda report: False,
) -> int:
    """Run `start` until its trainer starts, and print the report of `build_report`; `name` is used in messages."""
    reports: list[Printable] = []
    with stop_at_start(lambda trainer: reports.append(build_report(trainer))), contextlib.redirect_stdout(sys.stderr):
        code = start()
    if not reports:
        return code if code else refuse(_describe_unstarted(name), NEVER_STARTED)
    _print_report(reports[0], form)
    return FAILED if failed(reports[0]) else 0


def refuse(text: str, code: int) -> int:
    """Print what is wrong with the command line, and return the exit code."""
    print(f"ostinato: {text}", file=sys.stderr)
    return code


def describe_missing_script(given: str) -> str:
    """Return what is wrong with the name of a script."""
    path = Path(given)
    why = "it is a directory" if path.is_dir() else f"{path.absolute()} does not exist"
    return f"there is no script {given!r}\n  why: {why}\n  fix: name a Python file, relative to the current directory"


def _describe_unstarted(script: str) -> str:
    return (
        f"{script} ended before an ostinato Trainer started to train, evaluate or predict\n"
        "  why: the report is made when a trainer starts\n"
        "  fix: call trainer.train() in the script, and pass the arguments that it needs"
    )


# ---- running --------------------------------------------------------------------------------------------------------


def run_script(script: Path, arguments: list[str]) -> int:
    """Run a script as `python SCRIPT ...` would, with the same traceback, and return its exit code."""

    def start() -> None:
        runpy.run_path(str(script), run_name="__main__")

    return _run(start, [str(script), *arguments], str(script.resolve().parent), str(script))


def run_module(name: str, arguments: list[str]) -> int:
    """Run a module as `python -m MODULE ...` would, and return its exit code."""

    def start() -> None:
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    return _run(start, [name, *arguments], os.getcwd(), None)


def _run(start: Callable[[], Any], arguments: list[str], directory: str, script: str | None) -> int:
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = arguments, [directory, *sys.path]
    try:
        start()
    except TrainerStarted:
        pass
    except SystemExit as end:
        return _get_exit_code(end)
    except Exception as error:
        _print_error(error, script)
        return FAILED
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _get_exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # sys.exit("a message")
    return FAILED


def _print_error(error: Exception, script: str | None) -> None:
    """Print the traceback from the script's first frame: the frames of the runner are irrelevant."""
    entry = error.__traceback__
    while entry is not None and not _is_user_file(entry.tb_frame.f_code.co_filename, script):
        entry = entry.tb_next
    traceback.print_exception(type(error), error, entry or error.__traceback__)


def _is_user_file(file: str, script: str | None) -> bool:
    return file == script if script is not None else file != __file__ and "runpy" not in file


@contextlib.contextmanager
def stop_at_start(reached: Callable[[Trainer], None], starts: Sequence[str] = STARTING_METHODS) -> Iterator[None]:
    """Make every trainer call `reached` and stop the script instead of starting, by any of these methods."""
    from ..trainer import Trainer  # noqa: PLC0415

    def start(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        put_back()  # what is reached may start it
        reached(trainer)  # now, while the script's files and directories exist
        raise TrainerStarted

    def put_back() -> None:
        for name, method in methods.items():
            setattr(Trainer, name, method)

    methods = {name: vars(Trainer)[name] for name in starts}
    for name in methods:
        setattr(Trainer, name, start)
    try:
        yield
    finally:
        put_back()


def _uses_transformers(script: Path) -> bool:
    """Return whether a script imports transformers' Trainer, and nothing of Ostinato's."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return False  # running the script reports it
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else one.name for node in imports for one in node.names
    }
    if any(module.split(".")[0] == "ostinato" for module in modules):
        return False
    theirs = (node for node in imports if isinstance(node, ast.ImportFrom))
    return any(
        (node.module or "").split(".")[0] == "transformers" and alias.name in _TRANSFORMERS_TRAINERS
        for node in theirs
        for alias in node.names
    )


# ---- printing -------------------------------------------------------------------------------------------------------


def _print_report(report: Printable, form: str) -> None:
    if form == "json":
        print(report.to_json())
    elif form == "markdown":
        print(report.to_markdown(), end="")
    elif sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415

        Console().print(report)
    else:
        print(report)
