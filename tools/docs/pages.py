"""The pages of the documentation that are made from the code and committed.

`tests/docs/test_generated_pages.py` compares them with what the code makes now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.docs import argument_page, call_graph, error_page, event_page, hook_page, method_page

DOCS = Path(__file__).parents[2] / "docs"
GENERATED: dict[str, Callable[[], str]] = {
    "argument-list.md": argument_page.format_page,
    "events.md": event_page.format_page,
    "hooks.md": hook_page.format_page,
    "methods.md": method_page.format_page,
    "pictures/evaluate.svg": call_graph.format_evaluation,
    "pictures/train.svg": call_graph.format_training,
    "troubleshooting.md": error_page.format_page,
}


def write_pages() -> None:
    """Write every page that differs."""
    for name, build in GENERATED.items():
        text, path = build(), DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote docs/{name}")
