"""Trace one batch through training and evaluation; write `docs/one-batch.md` and `docs/one-evaluation.md`.

    python benchmarks/one_batch.py            # write the pages
    python benchmarks/one_batch.py --print    # only show them

A *hop* is a frame of a library between `train()` or `evaluate()` and the model's `forward`; a *call* is any call of a
library's Python function from one forward to the next (comprehensions, which newer interpreters inline, are not
counted). Both are seen on a real run, through the profiler hook of the interpreter.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments

TEXTS = Path(__file__).parents[1] / "tools" / "docs"  # what the pages say beside the trace
DOCS = Path(__file__).parents[1] / "docs"


@dataclass
class Trace:
    """What was called from one forward to the next."""

    hops: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


class Tracer(nn.Module):
    """A tiny model that watches the library that trains it: from one forward to the next lies exactly one step."""

    def __init__(self, packages: tuple[str, ...], first: int = 12) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.roots = tuple(f"/{package}/" for package in packages)
        self.first, self.seen, self.trace = first, 0, Trace()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        self.seen += 1
        if self.seen == self.first:
            self.trace.hops = self._hops()
            sys.setprofile(self._note)
        elif self.seen == self.first + 1:
            sys.setprofile(None)
        logits = self.layer(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}

    def _name(self, code: Any) -> str | None:
        for root in self.roots:
            _, found, rest = code.co_filename.replace("\\", "/").rpartition(root)
            if found:
                return (
                    f"{rest.removesuffix('.py').replace('/', '.')}.{code.co_qualname}"
                    if sys.version_info >= (3, 11)
                    else code.co_name
                )
        return None

    def _hops(self) -> list[str]:
        frame, names = sys._getframe(2), []
        while frame is not None:
            name = self._name(frame.f_code)
            if name is not None:
                names.append(name)
            frame = frame.f_back
        return names[::-1]

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call" and not frame.f_code.co_name.endswith(("comp>", "genexpr>")):
            name = self._name(frame.f_code)
            if name is not None:
                self.trace.calls.append(name)


def trace(trainer_class: Any, arguments_class: Any, packages: tuple[str, ...], *, evaluates: bool = False) -> Trace:
    """Trace one step of a plain run, or one batch of a plain evaluation: one process, nothing logged in between."""
    generator = torch.Generator().manual_seed(0)
    rows = [{"x": torch.randn(4, generator=generator), "labels": torch.tensor(1.0)} for _ in range(64)]
    model = Tracer(packages)
    with tempfile.TemporaryDirectory() as directory:
        args = arguments_class(
            output_dir=directory, per_device_train_batch_size=4, per_device_eval_batch_size=4, num_train_epochs=1,
            use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        if evaluates:
            measure = {"compute_metrics": lambda prediction: {"rows": len(prediction.label_ids)}}
            trainer_class(model=model, args=args, eval_dataset=rows, **measure).evaluate()
        else:
            trainer_class(model=model, args=args, train_dataset=rows).train()
    return model.trace


def format_page(ours: Trace, *, evaluates: bool = False) -> str:
    """Return the trace as Markdown."""
    title, function = ("One evaluation batch", "evaluate()") if evaluates else ("One batch", "train()")
    span = "One batch of an evaluation" if evaluates else "One optimizer step"
    between = (
        "gathering and keeping its rows, events, and fetching the next batch"
        if evaluates
        else "backward, clipping, the step, events, and fetching the next batch"
    )
    lines = [
        f"# {title}, traced",
        "",
        "Written by `python benchmarks/one_batch.py` from a real run; a test compares it with the code.",
        "",
        *(TEXTS / f"{'evaluation' if evaluates else 'training'}_values.md").read_text("utf-8").splitlines(),
        "",
        f"## From `{function}` to `forward`: {len(ours.hops)} hops",
        "",
        *(f"{number}. `{name}`" for number, name in enumerate(ours.hops, 1)),
        "",
        f"## {span}: {len(ours.calls)} calls of library functions",
        "",
        f"From one forward to the next: {between}.",
        "",
        "| calls | function |",
        "|---|---|",
        *(f"| {count} | `{name}` |" for name, count in Counter(ours.calls).items()),
        "",
    ]
    return "\n".join(lines)


def trace_ostinato(*, evaluates: bool = False) -> Trace:
    """Trace this library."""
    return trace(Trainer, TrainingArguments, ("src/ostinato", "site-packages/ostinato"), evaluates=evaluates)


PAGES = {"one-batch.md": False, "one-evaluation.md": True}  # by file: whether it is of an evaluation


if __name__ == "__main__":
    for name, evaluates in PAGES.items():
        text = format_page(trace_ostinato(evaluates=evaluates), evaluates=evaluates)
        if "--print" in sys.argv:
            print(text)
        else:
            (DOCS / name).write_text(text, encoding="utf-8")
