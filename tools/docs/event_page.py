"""The page of events, `docs/events.md`: recorded in a run; what an event clears is read from the code."""

from __future__ import annotations

import contextlib
import io
import tempfile
from typing import Any

import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.callbacks.events import CLEARED_BY, EVENTS

FLAGS = ("should_log", "should_evaluate", "should_save", "should_epoch_stop", "should_training_stop")
EVERY_EVENT = {
    "model", "processing_class", "optimizer", "lr_scheduler", "train_dataloader", "eval_dataloader",
}  # fmt: skip
MAY = {
    "on_init_end": "Look at the trainer's settings. Nothing is trained yet, and there is no optimizer.",
    "on_train_begin": "Set up. The optimizer, the schedule and the loader exist; `state.max_steps` is known.",
    "on_epoch_begin": "Freeze or thaw parameters; change what the data set does in this epoch.",
    "on_step_begin": "Change the learning rate or the model before the first forward of the step.",
    "on_substep_end": "Look at gradients that are not complete; ask to stop, which discards the step.",
    "on_pre_optimizer_step": "Look at or change gradients: they are complete and clipped.",
    "on_optimizer_step": "Look at gradients and new weights together.",
    "on_step_end": "Ask to log, evaluate, save or stop: the usual place.",
    "on_log": "Send `logs` elsewhere. Adding to `logs` reaches the callbacks that follow.",
    "on_prediction_step": "Show progress of an evaluation.",
    "on_evaluate": "Use `metrics`; ask to save or stop.",
    "on_predict": "Use `metrics` of `predict`.",
    "on_save": "Use the files of the checkpoint, which is complete.",
    "on_epoch_end": "Ask to log, evaluate, save or stop at the end of an epoch.",
    "on_train_end": "Clean up. Weights, state and files are final.",
    "on_push_begin": "Change the repository's files before they are uploaded.",
}

INTRODUCTION = """\
# Events

Every event in the order of a run. The order, the keywords and the flags are recorded from a run by
`python -m tools.docs`, and a test compares them. [Callbacks, state and control](control.md) explains what they mean.

Each event is a method `on_…(args, state, control, **kwargs)` of a callback. All events have these keywords: `model`,
`processing_class`, `optimizer`, `lr_scheduler`, `train_dataloader`, `eval_dataloader`. An event that a callback does
not override costs nothing.
"""


class Recorder(TrainerCallback):
    """Records every event with the step, its own keywords and the flags that are set."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, tuple[str, ...], tuple[str, ...]]] = []


def _build_method(event: str) -> Any:
    def record(self: Recorder, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        raised = tuple(flag for flag in FLAGS if getattr(control, flag))
        self.events.append((event, state.global_step, tuple(sorted(set(kwargs) - EVERY_EVENT)), raised))

    return record


for _event in EVENTS:
    setattr(Recorder, _event, _build_method(_event))


class Net(nn.Module):
    """A model that is as small as possible."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        """Return the loss and a number for each row."""
        logits = self.layer(x)
        return {"loss": None if labels is None else ((logits - labels) ** 2).mean(), "logits": logits}


def record_run() -> list[tuple[str, int, tuple[str, ...], tuple[str, ...]]]:
    """Return the events of a run of two steps with two micro-batches each, and of a prediction."""
    recorder = Recorder()
    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor([1.0])} for i in range(4)]
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        args = TrainingArguments(
            directory, num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=2, use_cpu=True,
            logging_steps=1, eval_strategy="steps", eval_steps=2, save_steps=2, disable_tqdm=True, report_to="none",
            journal=False, write_report=False,
        )  # fmt: skip
        trainer = Trainer(Net(), args, train_dataset=rows, eval_dataset=rows[:2], callbacks=[recorder])
        trainer.train()
        trainer.predict(rows[:2])
    return recorder.events


def format_page() -> str:
    """Return the page as Markdown."""
    events = record_run()
    indent = {"on_epoch_begin": 1, "on_epoch_end": 1, "on_init_end": 0, "on_train_begin": 0, "on_train_end": 0}
    lines = [INTRODUCTION, "## A recorded run", ""]
    lines += [
        "One epoch of two steps with two micro-batches each; then `predict`. On the right, the flags that are set when"
    ]
    lines += [
        "the event arrives. In the second step everything is asked for: by `DefaultFlowCallback`, which comes first.",
        "",
    ]
    lines.append("```text")
    is_over = False
    for name, step, _, raised in events:
        depth = 0 if is_over else indent.get(name, 3 if name == "on_prediction_step" else 2)
        is_over = is_over or name == "on_train_end"
        lines.append(f"{'  ' * depth + name:28} step {step}  {', '.join(raised)}".rstrip())
    lines += [
        "```",
        "",
        "## Every event",
        "",
        "| event | own keywords | clears | what to do in it |",
        "|---|---|---|---|",
    ]
    own = {name: keywords for name, _, keywords, _ in events}
    for name in MAY:
        keywords = ", ".join(f"`{one}`" for one in own.get(name, ()))
        cleared = ", ".join(f"`{flag}`" for flag in CLEARED_BY.get(name, ()))
        lines.append(f"| `{name}` | {keywords} | {cleared} | {MAY[name]} |")
    return "\n".join(lines) + "\n"
