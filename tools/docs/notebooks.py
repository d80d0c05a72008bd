"""The notebooks: `python -m tools.docs.notebooks` runs them and keeps their output; a hook of mkdocs shows them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run_notebook(path: Path) -> Any:
    """Return a notebook with the output of all its cells; raise if one fails."""
    from nbclient import NotebookClient  # noqa: PLC0415  only where notebooks are run

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as directory:
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": directory}}
        )
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which would differ in every run
    return notebook


def format_output(output: Any) -> str:
    """Return an output of a cell as Markdown."""
    if output.output_type == "stream":
        return f"```text\n{ANSI.sub('', output.text).rstrip()}\n```"
    data = output.get("data", {})
    if "text/html" in data:
        return "<div>" + re.sub(r"\n\s*", "\n", data["text/html"]).replace("\n\n", "\n") + "</div>"
    if "image/png" in data:
        return f'<img alt="output" src="data:image/png;base64,{data["image/png"].strip()}">'
    return f"```text\n{data.get('text/plain', '').rstrip()}\n```"


def format_page(path: Path) -> str:
    """Return a notebook with its output as Markdown."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        shown = [text for text in map(format_output, cell.outputs) if "\n\n```" not in text]
        if shown:
            parts.append('<div class="cell-output" markdown>\n\n' + "\n\n".join(shown) + "\n\n</div>")
    return "\n\n".join([*parts, f"The notebook: `notebooks/{path.name}`.", ""])


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook (called by mkdocs)."""
    from mkdocs.structure.files import File  # noqa: PLC0415  only where the site is built

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](../examples/\1.md)", format_page(path))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for notebook_path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(run_notebook(notebook_path), notebook_path)
