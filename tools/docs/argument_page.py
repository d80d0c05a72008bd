"""The page of arguments, `docs/argument-list.md`, from their declarations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from collections import defaultdict
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import ostinato
from ostinato import Extras, Seq2SeqTrainingArguments, TrainingArguments
from ostinato.arguments.argument import Declaration, get_declarations, get_default
from ostinato.arguments.describe import _find_subjects
from ostinato.arguments.renamed_arguments import OLD_ARGUMENTS
from ostinato.core.errors import ConfigError

CHECKS = Path(ostinato.__file__).parent / "arguments"
# In which of the releases of transformers that were looked at an argument first was (tools/docs/argument_history.py).
HISTORY: dict[str, str] = json.loads(Path(__file__).with_name("argument_history.json").read_text("utf-8"))
OLDEST = "4.30"

INTRODUCTION = """\
# All arguments

Every argument of `TrainingArguments`, with those of `Seq2SeqTrainingArguments` and `Extras`. The page is made from the
declarations in `src/ostinato/arguments/fields`; a test compares it with them. [Arguments](arguments.md) describes how
arguments are passed, checked and explained; `args.explain("NAME")` prints one with its present value.

- **Since** is the first release of transformers that has the argument, of those from 4.30 on that were compared (every
  second minor release); or, for arguments that transformers does not have, the release of Ostinato.
- **Checked with** names arguments that occur in the same check: a contradiction between them is an error before
  the first step, or one follows from the other.
- **On resume** says what a value other than the checkpoint's means.
"""


@cache
def find_partners() -> dict[str, set[str]]:
    """Return the arguments that occur together in one check, or in the help of one of them."""
    helps = {field.name: field.metadata.get("help", "") for field in list_fields()}
    partners: dict[str, set[str]] = defaultdict(set)

    def relate(text: str, own: str = "") -> None:
        named = {name for name in helps if name == own or re.search(rf"\b{name}\b(?=[\s'\"]*=)", text)}
        named |= {name for name in helps if "_" in name and re.search(rf"(?<![\w.]){name}\b", text)}
        for name in named:
            partners[name] |= named - {name}

    for name, text in helps.items():
        relate(text, name)
    for module in ("validate.py", "validate_trainer.py", "derive.py"):
        for node in ast.walk(ast.parse((CHECKS / module).read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ConfigError", "NotSupportedError"):
                relate(ast.unparse(node))
    return partners


def list_fields() -> list[dataclasses.Field[Any]]:
    """Return the fields of all arguments."""
    return [*dataclasses.fields(Seq2SeqTrainingArguments), *dataclasses.fields(Extras)]


@cache
def find_old_names() -> dict[str, list[str]]:
    """Return the old names of each argument, found by translating them."""
    trials = (True, 0.25, "epoch", 3, "name/of", "group_by_length")
    found: dict[str, list[str]] = defaultdict(list)
    for old, declared in OLD_ARGUMENTS.items():
        for value in trials:
            given: dict[str, Any] = {}
            try:
                declared.put(value, given)
            except (ConfigError, TypeError, AttributeError, ValueError):
                continue
            if given:
                for name in given:
                    found[name].append(old)
                break
    return found


def format_value(value: Any) -> str:
    """Return a default as it is written in a call."""
    return repr(value.value if isinstance(value, Enum) else value)


def describe_choices(declared: Declaration) -> str:
    """Return the accepted values; empty if any value of the type is accepted."""
    if isinstance(declared.choices, type):
        return ", ".join(f"`{member.value}`" for member in declared.choices)  # type: ignore[attr-defined]
    if declared.choices:
        return ", ".join(f"`{choice}`" for choice in declared.choices)
    if declared.number is None:
        return ""
    return str(declared.number) if str(declared.number) not in ("a number", "a finite number") else ""


def describe_resume(declared: Declaration) -> str:
    """Return what a changed value means when a run is resumed."""
    if declared.on_resume is None:
        return "use the new value, which changes no number"
    doc = inspect.getdoc(declared.on_resume) or ""
    first = doc.splitlines()[0].rstrip(".") if doc else ""
    return first[:1].lower() + first[1:].replace("Use the new value", "use the new value")


def describe_origin(name: str) -> str:
    """Return since when an argument is there."""
    if name in {field.name for field in dataclasses.fields(Extras)}:
        return "Ostinato 0.2.0"
    since = HISTORY[name]
    return f"transformers {OLDEST} or before" if since == OLDEST else f"transformers {since}"


def format_entry(field: dataclasses.Field[Any], declared: Declaration) -> str:
    """Return the entry of an argument as Markdown."""
    name, help_text = field.name, field.metadata.get("help", "")
    kind = str(field.type).replace("| str", "").strip() if isinstance(declared.choices, type) else str(field.type)
    lines = [f"### `{name}`", "", f"`{kind}`, default `{format_value(get_default(field))}`. {help_text}", ""]
    if choices := describe_choices(declared):
        lines.append(f"- **Accepts** {choices}")
    if declared.unsupported is not None:
        lines.append(f"- **Not supported**: {declared.unsupported.why}. Instead: {declared.unsupported.fix}")
    if old := find_old_names().get(name):
        lines.append(f"- **Renamed from** {', '.join(f'`{one}`' for one in sorted(old))}")
    if partners := sorted(find_partners().get(name, ())):
        lines.append(f"- **Checked with** {', '.join(f'[`{one}`](#{one})' for one in partners)}")
    if declared.unsupported is None and (resume := describe_resume(declared)):
        lines.append(f"- **On resume** {resume}")
    lines.append(f"- **Since** {describe_origin(name)}")
    return "\n".join(lines)


def format_old_names() -> str:
    """Return the table of old names."""
    lines = ["## Old names", "", "Names of transformers since 4.30 that do not exist any more.", ""]
    lines += ["| old name | what becomes of it |", "|---|---|"]
    trials = (True, 0.25, "epoch", 3, "name/of", "amp", "PATH")
    for old, declared in sorted(OLD_ARGUMENTS.items()):
        answer = "accepted; it has no effect"
        for value in trials:
            given: dict[str, Any] = {}
            try:
                line = declared.put(value, given)
            except ConfigError as problem:
                if value == declared.default or "not a" in str(problem.what):
                    continue
                answer = f"refused: {problem.why}. Instead: {problem.fix}"
                break
            except (TypeError, AttributeError):
                continue
            targets = ", ".join(f"[`{name}`](#{name})" for name in given)
            effect = re.sub(rf"^{old}=\S+:? (?=\w)", "", line)  # without the value that was tried
            answer = targets or effect
            break
        lines.append(f"| `{old}` | {answer} |")
    return "\n".join(lines)


def format_page() -> str:
    """Return the page as Markdown."""
    subjects = {
        **dict(_find_subjects(Seq2SeqTrainingArguments)),
        **dict.fromkeys((one.name for one in dataclasses.fields(Extras)), (Extras.__doc__ or "").splitlines()[0]),
    }
    declarations = {**get_declarations(Seq2SeqTrainingArguments), **get_declarations(Extras)}
    grouped: dict[str, list[str]] = defaultdict(list)
    own = {field.name for field in dataclasses.fields(TrainingArguments)}
    for field in list_fields():
        subject = subjects[field.name]
        if field.name not in own and subject not in (Extras.__doc__ or ""):
            subject = "Generation in evaluations (`Seq2SeqTrainingArguments`)."
        grouped[subject].append(format_entry(field, declarations[field.name]))
    parts = [INTRODUCTION]
    for subject, entries in grouped.items():
        parts += [f"## {subject.rstrip('.')}", *entries]
    return "\n\n".join([*parts, format_old_names()]).replace("\n\n\n", "\n\n") + "\n"
