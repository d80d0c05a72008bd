"""The page of errors, `docs/troubleshooting.md`: every error text of the source, with its cause and its cure."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
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


Names = Mapping[str, ast.expr]  # what is known of variables: the expression that each one stands for


def read_text(node: ast.expr | None, names: Names = MappingProxyType({})) -> str:
    """Return what an expression says, with a placeholder for every value that is not known.

    >>> read_text(ast.parse("f'no {name!r}: ' + reason", mode="eval").body)
    'no …: …'
    >>> read_text(ast.parse("f'no {name!r}: {reason}'", mode="eval").body, {"reason": ast.Constant("it is gone")})
    'no …: it is gone'
    """
    if isinstance(node, ast.Constant) and node.value is not None:
        return str(node.value)
    if isinstance(node, ast.FormattedValue):
        return read_text(node.value, names) if isinstance(node.value, ast.Name) else VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(read_text(part, names) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return read_text(node.left, names) + read_text(node.right, names)
    if isinstance(node, ast.IfExp):
        either = [text for text in (read_text(node.body, names), read_text(node.orelse, names)) if text != VALUE]
        return " / ".join(either) if either else VALUE
    if isinstance(node, ast.Name) and node.id in names:
        return read_text(names[node.id], {name: value for name, value in names.items() if name != node.id})
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


class ErrorCall(NamedTuple):
    """The creation of an error: its class, and the expressions of its text."""

    kind: str
    texts: tuple[ast.expr | None, ...]  # what, why, fix


class Helper(NamedTuple):
    """A function that creates an error with a text that it is given."""

    module: str
    parameters: tuple[str, ...]
    created: ErrorCall
    names: Names


def get_name(call: ast.Call) -> str:
    """Return the last part of what is called."""
    return ast.unparse(call.func).split(".")[-1]


def read_error_call(call: ast.Call, owner: str) -> ErrorCall | None:
    """Return the error that a call creates; `owner` is the class around it, which may be an error itself."""
    kind = get_name(call)
    if ast.unparse(call.func) == "super().__init__" and owner in find_error_names():
        kind = owner
    if kind not in find_error_names():
        return None
    keywords = {one.arg: one.value for one in call.keywords}
    given = [*call.args, None, None, None]
    return ErrorCall(
        kind, tuple(keywords.get(name) or given[place] for place, name in enumerate(("what", "why", "fix")))
    )


def read_error(module: str, created: ErrorCall, names: Names) -> ErrorText | None:
    """Return the text of an error; None if it says nothing of its own, such as one that repeats another."""
    what, why, fix = (read_text(one, names) for one in created.texts)
    words = re.findall(r"[A-Za-z]{2,}", what.replace(VALUE, ""))
    return ErrorText(module, created.kind, what, why, fix) if words else None


def find_variables(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the variables of a function that are assigned once, with what they are assigned."""
    assigned: dict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned[node.targets[0].id].append(node.value)
    return {name: values[0] for name, values in assigned.items() if len(values) == 1}


def iterate_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.FunctionDef | None, str]]:
    """Yield every call of a module with the function and the name of the class around it."""
    pending: list[tuple[ast.AST, ast.FunctionDef | None, str]] = [(tree, None, "")]
    while pending:
        node, function, owner = pending.pop()
        if isinstance(node, ast.ClassDef):
            owner = node.name
        elif isinstance(node, ast.FunctionDef):
            function = node
        elif isinstance(node, ast.Call):
            yield node, function, owner
        pending += [(child, function, owner) for child in ast.iter_child_nodes(node)]


def bind(helper: Helper, call: ast.Call) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of the parameters."""
    named = {one.arg: one.value for one in call.keywords if one.arg is not None}
    return dict(zip(helper.parameters, call.args, strict=False)) | named


@cache
def find_errors() -> tuple[ErrorText, ...]:
    """Return every error text of the package, those that functions are given to raise included."""
    found: list[ErrorText | None] = []
    helpers: dict[str, list[Helper]] = defaultdict(list)
    for module, tree in parse_package().items():
        for call, function, owner in iterate_calls(tree):
            created = read_error_call(call, owner)
            if created is None:
                continue
            names = find_variables(function) if function else {}
            found.append(read_error(module, created, names))
            if function is None:
                continue
            parameters = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
            used = {node.id for text in created.texts if text for node in ast.walk(text) if isinstance(node, ast.Name)}
            if used & {"what", "why", "fix", "problem", "reason", "says"} & set(parameters):
                bound = tuple(parameters[1:] if parameters[0] in ("self", "cls") else parameters)
                helpers[function.name].append(Helper(module, bound, created, names))
    for module, tree in parse_package().items():
        for call, function, _ in iterate_calls(tree):
            for helper in helpers.get(get_name(call), ()):
                is_private = get_name(call).startswith("_")
                if is_private and helper.module != module:
                    continue
                known = find_variables(function) if function else {}
                found.append(read_error(module, helper.created, {**helper.names, **known, **bind(helper, call)}))
    return tuple(error for error in found if error is not None)


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
        texts: dict[str, list[ErrorText]] = {}  # one that has several causes is one heading
        for error in sorted(set(grouped[subject]), key=sort_key):
            texts.setdefault(error.what, []).append(error)
        for what, errors in texts.items():
            # A heading of its own: the search finds an error by the words of its title.
            lines.append(f"#### {escape(what)}\n")
            reasons = {(error.kind, error.why, error.fix) for error in errors}
            known = [reason for reason in sorted(reasons) if reason[1].strip(f" {VALUE}")]
            for kind, *reason in known or sorted(reasons)[:1]:
                cause, cure = (escape(one) if one.strip(f" {VALUE}") else "stated with the error." for one in reason)
                lines += [f"`{kind}`  ", f"Cause: {cause}  ", f"Cure: {cure}\n"]
    return "\n".join(lines).rstrip() + "\n"
