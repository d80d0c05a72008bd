"""The page of errors, `docs/troubleshooting.md`: every error text of the source, with its cause and its cure."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.docs.sources import parse_package

VALUE = "…"  # stands for what is filled in when the error is raised

SUBJECTS = {
    "arguments": "Arguments",
    "callbacks": "Callbacks",
    "checkpoint": "Checkpoints and resuming",
    "cli": "The command line",
    "compat": "Names of transformers, and the drop-in",
    "core": "Names and choices",
    "data": "Data, collators and samplers",
    "diagnostics": "Batches that a model cannot take",
    "dropin": "Names of transformers, and the drop-in",
    "engine": "Training",
    "evaluation": "Evaluation",
    "hub": "The hub",
    "journal": "Journal and report",
    "loss": "Losses",
    "metrics": "Metrics",
    "optim": "Optimizers and schedules",
    "progress": "Progress",
    "report": "Journal and report",
    "search": "Hyperparameter search",
    "seq2seq_trainer": "Generation",
    "strategies": "Devices, processes and number formats",
    "tasks": "Tasks",
    "trackers": "Trackers",
    "trainer": "Training",
    "logging": "Names and choices",
}

SYMPTOMS = Path(__file__).with_name("symptoms.md")


class ErrorText(NamedTuple):
    """An error as the source has it."""

    module: str
    kind: str
    what: str
    why: str
    fix: str


def read_text(node: ast.expr | None) -> str:
    """Return what an expression says, with a placeholder for every value.

    >>> read_text(ast.parse("f'no {name!r}: ' + reason", mode="eval").body)
    'no …: …'
    """
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(read_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return read_text(node.left) + read_text(node.right)
    if isinstance(node, ast.IfExp):
        either = [text for text in (read_text(node.body), read_text(node.orelse)) if text != VALUE]
        return " / ".join(either) if either else VALUE
    return "" if node is None else VALUE


@cache
def find_error_names() -> frozenset[str]:
    """Return the names of the error classes of the package."""
    bases = {
        node.name: [ast.unparse(base).split(".")[-1] for base in node.bases]
        for tree in parse_package().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    names = {"OstinatoError"}
    while more := {name for name, parents in bases.items() if names & set(parents)} - names:
        names |= more
    return frozenset(names)


def read_call(call: ast.Call, module: str) -> ErrorText | None:
    """Return the text of an error that is created; None if the call creates none, or says nothing of its own."""
    kind = ast.unparse(call.func).split(".")[-1]
    if kind not in find_error_names():
        return None
    keywords = {one.arg: one.value for one in call.keywords}
    given = [*call.args, None, None, None]
    what, why, fix = (
        read_text(keywords.get(name) or given[place]) for place, name in enumerate(("what", "why", "fix"))
    )
    says_something = len(re.findall(r"[A-Za-z]{3,}", what.replace(VALUE, ""))) >= 2
    return ErrorText(module, kind, what, why, fix) if says_something else None


@cache
def find_errors() -> tuple[ErrorText, ...]:
    """Return every error text of the package."""
    found = []
    for module, tree in parse_package().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (error := read_call(node, module)) is not None:
                found.append(error)
    return tuple(found)


def build_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that matches the text with any values filled in."""
    variants = text.split(" / ")
    return re.compile("|".join(".*".join(map(re.escape, one.split(VALUE))) for one in [text, *variants]), re.DOTALL)


def sort_key(error: ErrorText) -> tuple[str, ...]:
    """Return the words of an error, for an order in which its values do not count."""
    return (error.what.lstrip(VALUE + " '\"=_").lower(), *error)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"([*_`\[\]<>#|\\])", r"\\\1", " ".join(text.split()))


def format_page() -> str:
    """Return the page as Markdown."""
    grouped: dict[str, list[ErrorText]] = defaultdict(list)
    for error in find_errors():
        package = error.module.split("/")[0]
        grouped[SUBJECTS.get(package, package.replace("_", " ").capitalize())].append(error)
    lines = [SYMPTOMS.read_text("utf-8")]
    for subject in sorted(grouped):
        lines.append(f"### {subject}\n")
        for error in sorted(set(grouped[subject]), key=sort_key):
            # A heading of its own: the search finds an error by the words of its title.
            lines.append(f"#### {escape(error.what)}\n\n`{error.kind}`  ")
            lines.append(f"Cause: {escape(error.why)}  " if error.why else "Cause: stated with the error.  ")
            lines.append(f"Cure: {escape(error.fix)}\n" if error.fix else "Cure: stated with the error.\n")
    return "\n".join(lines).rstrip() + "\n"
