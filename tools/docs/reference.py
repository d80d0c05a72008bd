"""A hook of mkdocs: one page of the reference for each subject, made from the table of public names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mkdocs.structure.files import File

import ostinato

DEFINED_IN = {"trackers": "trackers.registry"}  # names that a package passes on
NOT_IN_SOURCE = {"DEFAULT_PROGRESS_CALLBACK"}  # made when it is read

# By page: its title, its introduction, and the packages whose public names it has. The last one takes the rest.
SUBJECTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "trainer": (
        "Trainer",
        "The trainers. [Hooks](../hooks.md) says which of their methods are made to be overridden.",
        ("trainer", "seq2seq_trainer", "tasks"),
    ),
    "training-arguments": (
        "Arguments and parser",
        "The classes. Each argument is on the page [Arguments](../argument-list.md).",
        ("arguments", "core.choices"),
    ),
    "callbacks": (
        "Callbacks, state and control",
        "[Callbacks, state and control](../control.md) says when they are called and what they may change.",
        ("callbacks", "core.state", "journal", "progress"),
    ),
    "trackers": ("Trackers", "[Trackers](../trackers.md) says how they are used.", ("trackers",)),
    "data": ("Data", "Collators, samplers and evaluation sets.", ("data",)),
    "evaluation": (
        "Predictions, losses and metrics",
        "What an evaluation receives and returns. Metrics by name are in [Evaluation](../evaluation.md).",
        ("evaluation", "core.outputs", "core.logged_numbers", "core.metrics_text", "loss", "metrics"),
    ),
    "optim": ("Optimizers and schedules", "[Optimizers](../optimizers.md) lists the names of `optim`.", ("optim",)),
    "errors": (
        "Errors",
        "[Troubleshooting](../troubleshooting.md) lists every error by its text.",
        ("core.errors",),
    ),
    "helpers": ("Helpers", "Smaller functions, most of them for code written for transformers.", ("",)),
}


# Packages beside the top level: by page, its title, its introduction, and the module whose `__all__` it shows.
PACKAGES: dict[str, tuple[str, str, str]] = {
    "metrics": (
        "Metrics",
        "What `ostinato.metrics` offers to programs. `available()` lists the metrics;"
        " [Evaluation](../evaluation.md) describes how a trainer uses them.",
        "ostinato.metrics",
    ),
    "reports": (
        "Reports",
        "Reading journals and writing pages from a program. [Reports](../report.md) describes the command.",
        "ostinato.report",
    ),
    "logging": (
        "Messages",
        "How much is printed. [Notices and verbosity](../arguments.md#notices-and-verbosity) describes the arguments.",
        "ostinato.logging",
    ),
    "tasks": (
        "Recipes",
        "The parts of a recipe. [Tasks](../tasks/README.md#your-own-recipe) shows how to write one.",
        "ostinato.tasks",
    ),
    "ray": ("Ray", "[Ray Train](../ray.md) shows how they are used.", "ostinato.integrations.ray"),
}


def sort_names() -> dict[str, list[tuple[str, str]]]:
    """Return the public names with their modules, by page."""
    pages: dict[str, list[tuple[str, str]]] = {page: [] for page in SUBJECTS}
    for module, names in ostinato._NAMES_BY_MODULE.items():
        owners = [
            (len(package), page)
            for page, (_, _, packages) in SUBJECTS.items()
            for package in packages
            if not package or module == package or module.startswith(f"{package}.")
        ]
        pages[max(owners)[1]] += [(name, module) for name in names if name not in NOT_IN_SOURCE]
    return pages


def format_page(page: str, names: list[tuple[str, str]]) -> str:
    """Return a page of the reference as Markdown."""
    title, introduction, packages = SUBJECTS[page]

    def find_place(entry: tuple[str, str]) -> tuple[int, bool, str]:
        name, module = entry
        own = (number for number, package in enumerate(packages) if f"{module}.".startswith(f"{package}."))
        return next(own, len(packages)), name.isupper(), name  # constants last

    names = sorted(names, key=find_place)
    parts = [f"::: ostinato.{DEFINED_IN.get(module, module)}.{name}" for name, module in names]
    imports = f"Import them from the package: `from ostinato import {names[0][0]}`."
    return "\n\n".join([f"# {title}", introduction, imports, *parts, ""])


def format_package_page(page: str) -> str:
    """Return the page of a package beside the top level: classes and functions, as constants have no docstring."""
    title, introduction, name = PACKAGES[page]
    package = import_module(name)
    values = {public: getattr(package, public) for public in package.__all__}
    parts = [f"::: {value.__module__}.{public}" for public, value in values.items() if hasattr(value, "__qualname__")]
    imports = f"Import them from `{name}`."
    return "\n\n".join([f"# {title}", introduction, imports, *parts, ""])


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages (called by mkdocs)."""
    for page, names in sort_names().items():
        files.append(File.generated(config, f"reference/{page}.md", content=format_page(page, names)))
    for page in PACKAGES:
        files.append(File.generated(config, f"reference/{page}.md", content=format_package_page(page)))
    return files
