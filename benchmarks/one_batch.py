"""Follow one batch through the house and write `docs/one-batch.md`.

    python benchmarks/one_batch.py            # write the page
    python benchmarks/one_batch.py --print    # only show it

A *hop* is a frame of a library between `train()` and the model's `forward`; a *call* is any call of a library's Python
function during one optimizer step (comprehensions, which newer interpreters inline, are not counted). Both are seen
on a real run, through the profiler hook of the interpreter.
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

PAGE = Path(__file__).parents[1] / "docs" / "one-batch.md"


@dataclass
class Trace:
    """What one optimizer step called."""

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


def trace(trainer_class: Any, arguments_class: Any, packages: tuple[str, ...]) -> Trace:
    """One step of a plain run: one process, no accumulation, nothing logged in between."""
    generator = torch.Generator().manual_seed(0)
    rows = [{"x": torch.randn(4, generator=generator), "labels": torch.tensor(1.0)} for _ in range(64)]
    model = Tracer(packages)
    with tempfile.TemporaryDirectory() as directory:
        args = arguments_class(
            output_dir=directory, per_device_train_batch_size=4, num_train_epochs=1, use_cpu=True,
            save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer_class(model=model, args=args, train_dataset=rows).train()
    return model.trace


def page(ours: Trace) -> str:
    """The trace as Markdown."""
    lines = [
        "# One batch, followed",
        "",
        "Written by `python benchmarks/one_batch.py` from a real run; a test compares it with the code.",
        "",
        f"## From `train()` to `forward`: {len(ours.hops)} hops",
        "",
        *(f"{number}. `{name}`" for number, name in enumerate(ours.hops, 1)),
        "",
        f"## One optimizer step: {len(ours.calls)} calls of library functions",
        "",
        "From one forward to the next: backward, clipping, the step, events, and fetching the next batch.",
        "",
        "| calls | function |",
        "|---|---|",
        *(f"| {count} | `{name}` |" for name, count in Counter(ours.calls).items()),
        "",
    ]
    return "\n".join(lines)


def trace_ostinato() -> Trace:
    return trace(Trainer, TrainingArguments, ("src/ostinato", "site-packages/ostinato"))


if __name__ == "__main__":
    text = page(trace_ostinato())
    if "--print" in sys.argv:
        print(text)
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
