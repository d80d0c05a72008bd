"""Pictures of the calls of `train()` and `evaluate()` (`docs/pictures`), drawn from traced runs.

A run is traced with `sys.setprofile`. Of all calls, those of hooks, of the loop, of events and of the user's own code
are drawn: each once below the function that first called it, in the order of the calls.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from html import escape
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from tools.docs.hook_page import HOOKS
from tools.docs.sources import PACKAGE

HOOK_NAMES = {name for hooks in HOOKS.values() for name in hooks} - {
    "floating_point_ops", "_get_learning_rate", "compute_loss_context_manager", "autocast_smart_context_manager",
    "_prepare_context_parallel_inputs", "_set_signature_columns_if_needed", "_prepare_input", "_get_dataloader",
}  # fmt: skip
# Other functions that are drawn: the module, the function, and what is written beside it.
PARTS = {
    ("engine.loop", "train"): "the loop: epochs and updates",
    ("engine.loop", "accumulate_gradients"): "forward and backward of every micro-batch",
    ("engine.loop", "update_weights"): "clip, step, schedule, clear gradients",
    ("engine.loop", "report"): "looks at the flags of the control",
    ("engine.setup", "open_run"): "model, loader, optimizer, plan, resuming",
    ("engine.guarded_step", "take_step"): "optimizer.step(), unless the gradient is not finite",
    ("engine.saver", "save_checkpoint"): "a directory that appears whole or not at all",
    (
        "diagnostics.eval_dry_run",
        "check_first_evaluation",
    ): "tries one batch: a wrong metric fails now, not in an hour",
    ("engine.finish", "finish"): "best model, last log, TrainOutput",
    ("evaluation.eval_loop", "evaluation_loop"): "all batches, then the metrics",
    ("evaluation.eval_loop", "_gather"): "rows of all processes, in order",
    ("evaluation.kept_rows", "KeptRows.add"): "to the host, without padding",
    ("data.columns", "RemoveColumnsCollator.__call__"): "leaves out columns that forward does not take",
    ("loss.objective", "Objective.__call__"): "calls the model, finds the loss",
    ("strategies.precision", "FullPrecision.backward"): "loss.backward()",
    ("strategies.precision", "FullPrecision.step"): "optimizer.step()",
}
NOTES = {
    "train": "you call it",
    "evaluate": "you call it, or the loop does",
    "_inner_training_loop": "opens a run and closes it",
    "get_train_dataloader": "dataset, sampler, collator",
    "get_eval_dataloader": "dataset, sampler, collator",
    "_get_train_sampler": "the order of an epoch",
    "_get_eval_sampler": "rows in their order",
    "get_batch_samples": "the micro-batches of one optimizer step",
    "_prepare_inputs": "the batch goes to the device",
    "training_step": "one micro-batch",
    "compute_loss": "override it for a loss of your own",
    "_clip_grad_norm": "max_grad_norm",
    "create_optimizer_and_scheduler": "unless they were given",
    "_maybe_log_save_evaluate": "log, then evaluate, then save",
    "log": "history and on_log",
    "evaluation_loop": "one evaluation set",
    "prediction_step": "loss, logits, labels of one batch",
    "_save_checkpoint": "checkpoint-N",
    "_save": "the weights",
}
KINDS = {
    "hook": ("#e3f2fd", "#1565c0", "a hook of Trainer: override it"),
    "part": ("#f3f4f6", "#4b5563", "a function of the library"),
    "event": ("#fff3e0", "#e65100", "an event: callbacks are called"),
    "yours": ("#e8f5e9", "#2e7d32", "your code"),
}


class Node(NamedTuple):
    """A function that is drawn."""

    kind: str
    name: str
    note: str


class Net(nn.Module):
    """A model that is as small as possible."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        """Return the loss and a number for each row."""
        logits = self.layer(x)
        return {"loss": None if labels is None else ((logits - labels) ** 2).mean(), "logits": logits}


class Rows:
    """A data set of four rows."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor([float(place)]), "labels": torch.tensor([1.0])}


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return a batch."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def compute_metrics(prediction: Any) -> dict[str, float]:
    """Return a metric."""
    return {"off_by": float(abs(prediction.predictions - prediction.label_ids).mean())}


YOURS = {
    Net.forward.__code__: "model.forward",
    Rows.__getitem__.__code__: "dataset[i]",
    collate.__code__: "data_collator",
    compute_metrics.__code__: "compute_metrics",
}


def _name(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # older interpreters do not name methods in full


class Tree:
    """The calls of a run, each path once, in the order of the first calls."""

    def __init__(self) -> None:
        self.paths: dict[tuple[str, ...], Node] = {}
        self._stack: list[Node | None] = []
        self._known: dict[CodeType, Node | None] = {}

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow calls and returns (called by Python)."""
        if event == "call":
            node = self._find_node(frame)
            self._stack.append(node)
            if node is not None:
                path = tuple(one.name for one in self._stack if one is not None)
                self.paths.setdefault(path, node)
        elif event == "return" and self._stack:
            self._stack.pop()

    def _find_node(self, frame: FrameType) -> Node | None:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = self._classify(code)
        node = self._known[code]
        return node._replace(name=frame.f_locals["event"]) if node is not None and node.kind == "event" else node

    def _classify(self, code: CodeType) -> Node | None:
        if code in YOURS:
            return Node("yours", YOURS[code], "")
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return None
        module = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        owner, _, name = _name(code).rpartition(".")
        if module == "trainer" and owner == "Trainer" and name in HOOK_NAMES:
            return Node("hook", name, NOTES.get(name, ""))
        if (module, _name(code)) == ("callbacks.handler", "CallbackHandler.call_event"):
            return Node("event", "", "")
        note = PARTS.get((module, _name(code)))
        return None if note is None else Node("part", f"{module}.{_name(code)}", note)


def trace(*, evaluates: bool) -> Tree:
    """Trace `train()` with a log, an evaluation and a save; or `evaluate()` alone."""
    tree = Tree()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        args = TrainingArguments(
            directory, num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=2, use_cpu=True,
            logging_steps=2, eval_strategy="steps", eval_steps=2, save_steps=2, disable_tqdm=True, report_to="none",
            journal=False, write_report=False, rehearse=False,
        )  # fmt: skip
        options = {"train_dataset": Rows(), "eval_dataset": Rows(), "data_collator": collate}
        trainer = Trainer(Net(), args, compute_metrics=compute_metrics, **options)
        trainer.evaluate()  # so that what happens only once in a process is not traced
        sys.setprofile(tree.profile)
        try:
            trainer.evaluate() if evaluates else trainer.train()
        finally:
            sys.setprofile(None)
    return tree


def list_rows(tree: Tree, *, evaluates: bool) -> list[tuple[int, Node]]:
    """Return the rows of the picture, each a depth and a function. Within `train`, evaluation is one row."""
    drawn: list[tuple[int, Node]] = []

    def add(path: tuple[str, ...]) -> None:
        node = tree.paths[path]
        drawn.append((len(path) - 1, node))
        if node.name == "evaluate" and not evaluates:
            return
        for other in tree.paths:
            if len(other) == len(path) + 1 and other[: len(path)] == path:
                add(other)

    for path in [path for path in tree.paths if len(path) == 1]:
        add(path)
    rows: list[tuple[int, Node]] = []
    for depth, node in drawn:
        same = bool(rows) and node.kind == "event" and rows[-1][0] == depth and rows[-1][1].kind == "event"
        if same:  # events that follow one another share a row
            rows[-1] = (depth, rows[-1][1]._replace(name=f"{rows[-1][1].name}, {node.name}"))
        else:
            rows.append((depth, node))
    return rows


ROW, INDENT, LEFT, TOP, WIDTH = 26, 26, 12, 46, 980


def draw(rows: list[tuple[int, Node]], title: str) -> str:
    """Return the picture as SVG."""
    height = TOP + ROW * len(rows) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    x = LEFT
    for fill, stroke, meaning in KINDS.values():
        lines.append(f'<rect x="{x}" y="12" width="14" height="14" rx="3" fill="{fill}" stroke="{stroke}"/>')
        lines.append(
            f'<text x="{x + 20}" y="24" fill="#374151" font-family="system-ui, sans-serif">{escape(meaning)}</text>'
        )
        x += 40 + 7 * len(meaning)
    last_at: dict[int, int] = {}
    for number, (depth, node) in enumerate(rows):
        left, y = LEFT + INDENT * depth, TOP + ROW * number
        fill, stroke, _ = KINDS[node.kind]
        if depth:
            start = last_at[depth - 1] + ROW - 5
            elbow = left - INDENT + 10
            lines.append(f'<path d="M{elbow} {start}V{y + 11}H{left}" fill="none" stroke="#9ca3af"/>')
        last_at[depth] = y
        label = node.name + ("" if node.kind == "event" else "()")
        if node.name == "dataset[i]":
            label = node.name
        width = 16 + 7.85 * len(label)
        lines.append(
            f'<rect x="{left}" y="{y}" width="{width:.0f}" height="21" rx="4" fill="{fill}" stroke="{stroke}"/>'
            f'<text x="{left + 8}" y="{y + 15}" fill="#111827">{escape(label)}</text>'
        )
        if node.note:
            lines.append(
                f'<text x="{left + width + 10:.0f}" y="{y + 15}" fill="#6b7280" '
                f'font-family="system-ui, sans-serif">{escape(node.note)}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def format_training() -> str:
    """Return the picture of `train()`."""
    return draw(list_rows(trace(evaluates=False), evaluates=False), "The calls of train()")


def format_evaluation() -> str:
    """Return the picture of `evaluate()`."""
    return draw(list_rows(trace(evaluates=True), evaluates=True), "The calls of evaluate()")
