"""The page of hooks, `docs/hooks.md`: signatures and callers are read from the code, the rest is written here."""

from __future__ import annotations

import ast
import inspect
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ostinato import Trainer
from tools.docs.sources import parse_package

# By hook, the client libraries that override it (tools/docs/hook_overrides.py).
OVERRIDES: dict[str, list[str]] = json.loads(Path(__file__).with_name("hook_overrides.json").read_text("utf-8"))
SCANNED = 46  # public code bases that subclass or drive the Trainer, in which overrides were counted


class Hook(NamedTuple):
    """What the code cannot say about a hook."""

    when: str
    must: str
    overridden: int = 0  # in how many of the scanned code bases


HOOKS: dict[str, dict[str, Hook]] = {
    "A run": {
        "train": Hook("called by you", "return `super().train(…)`, a `TrainOutput`", 7),
        "_inner_training_loop": Hook(
            "once per `train`, inside the lock of the run's directory",
            "return a `TrainOutput`; call `super()`, or write the whole loop",
            3,
        ),
        "call_model_init": Hook("at the start of every `train` with `model_init`", "return a new model", 2),
        "create_accelerator_and_postprocess": Hook(
            "once, in the constructor", "call `super()`: it makes `self.accelerator`", 2
        ),
        "_wrap_model": Hook(
            "before training and before every evaluation", "return a module that computes the same as `model`", 1
        ),
        "_move_model_to_device": Hook("in the constructor", "leave the model on `device`", 1),
    },
    "Data": {
        "get_train_dataloader": Hook(
            "once per `train`",
            "return an iterable of batches; a `DataLoader` is resumed by row, anything else by batch",
            11,
        ),
        "get_eval_dataloader": Hook("before every evaluation", "take None, rows or the name of a set", 8),
        "get_test_dataloader": Hook("by `predict`", "return an iterable of batches", 3),
        "_get_dataloader": Hook("by the three above", "pass the arguments on to `super()`", 2),
        "_get_train_sampler": Hook(
            "when the training loader is made",
            "return a sampler of row numbers, or None; give it `set_epoch` if it shuffles",
            10,
        ),
        "_get_eval_sampler": Hook("when an evaluation loader is made", "yield every row once", 4),
        "_remove_unused_columns": Hook(
            "when a loader is made of a `datasets.Dataset`", "return the data set with fewer columns", 3
        ),
        "_set_signature_columns_if_needed": Hook(
            "before columns are removed", "set `self._signature_columns`, a list of names", 2
        ),
        "get_batch_samples": Hook(
            "once per optimizer step", "return the micro-batches and the count of their targets, or None", 3
        ),
        "_prepare_inputs": Hook(
            "for every batch of training and evaluation",
            "return the batch on `self.args.device`",
            3,
        ),
        "_prepare_input": Hook("by `_prepare_inputs`, for the batch", "return the same structure", 1),
    },
    "One step": {
        "training_step": Hook(
            "once per micro-batch",
            "run forward and backward; return the detached loss, already divided for accumulation; call `super()` "
            "unless you do all of it",
            10,
        ),
        "compute_loss": Hook(
            "once per micro-batch, and by `prediction_step`",
            "return the loss (a scalar, or a dict of losses), and with `return_outputs=True` also the outputs; a mean "
            "over the batch, or a sum divided by `num_items_in_batch`",
            21,
        ),
        "compute_loss_context_manager": Hook("around `compute_loss`", "return a context manager", 0),
        "autocast_smart_context_manager": Hook("by the one above", "return a context manager", 1),
        "_prepare_context_parallel_inputs": Hook("before the loss is computed", "return a context and the inputs", 1),
        "_clip_grad_norm": Hook("once per step, before `on_pre_optimizer_step`", "return the norm before clipping", 0),
        "floating_point_ops": Hook("for batches of a new shape", "return a number of operations", 0),
    },
    "Optimizer and schedule": {
        "create_optimizer_and_scheduler": Hook(
            "at the start of every `train`", "set `self.optimizer` and `self.lr_scheduler`", 1
        ),
        "create_optimizer": Hook(
            "by the one above",
            "set `self.optimizer` unless it is set, and return it",
            11,
        ),
        "create_scheduler": Hook("after the optimizer", "set `self.lr_scheduler` unless it is set, and return it", 6),
        "get_optimizer_cls_and_kwargs": Hook(
            "by `create_optimizer`", "return a class and its keywords (a static method)", 2
        ),
        "get_decay_parameter_names": Hook("by `create_optimizer`", "return names of `named_parameters()`", 0),
        "_get_learning_rate": Hook("after every step, for the log", "return a number", 0),
    },
    "Logs": {
        "log": Hook(
            "for every log line: of training, of `evaluate`, at the end",
            "call `super().log(…)` once; entries may be added to the dict or renamed",
            9,
        ),
        "_maybe_log_save_evaluate": Hook(
            "after a step or epoch in which the control asks for something",
            "call `super()` with the same arguments",
            5,
        ),
    },
    "Evaluation": {
        "evaluate": Hook(
            "when `control.should_evaluate` is set, and by you",
            "return a dict of metrics with their prefix",
            11,
        ),
        "predict": Hook("called by you", "return a `PredictionOutput`", 7),
        "evaluation_loop": Hook("once per set, by `evaluate` and `predict`", "return an `EvalLoopOutput`", 4),
        "prediction_step": Hook(
            "once per batch",
            "return (loss, predictions, labels), on the device; None for what there is not; no gradients",
            10,
        ),
        "_determine_best_metric": Hook("after an evaluation", "return whether this is the best so far", 0),
        "_load_best_model": Hook("at the end, with `load_best_model_at_end`", "load weights into `self.model`", 5),
    },
    "Saving and resuming": {
        "save_model": Hook("by you; for checkpoints `_save` is called", "write into `output_dir`", 7),
        "_save": Hook(
            "whenever weights are written",
            "write into the given directory and nowhere else: it becomes part of the checkpoint",
            16,
        ),
        "_save_checkpoint": Hook("when `control.should_save` is set", "call `super()`", 8),
        "_save_optimizer_and_scheduler": Hook("in a save", "write into the given directory", 2),
        "_save_rng_state": Hook("in a save", "write into the given directory", 1),
        "_save_scaler": Hook("in a save with float16", "write into the given directory", 0),
        "_load_from_checkpoint": Hook("when a run is resumed", "load weights from the directory", 5),
        "_load_optimizer_and_scheduler": Hook("when a run is resumed", "load what the save wrote", 4),
        "_load_rng_state": Hook("when a run is resumed", "load what the save wrote", 3),
        "push_to_hub": Hook("by you, and at the end with `push_to_hub=True`", "return the commit, or None", 2),
        "create_model_card": Hook("before an upload", "write README.md", 4),
        "_push_from_checkpoint": Hook("after a save, with `push_to_hub=True`", "start an upload", 2),
    },
}

INTRODUCTION = f"""\
# Hooks

A hook is a method of `Trainer` that is made to be overridden. The page is made by `python -m tools.docs`: signatures
and callers are read from the code, and a test compares the page with it.

- **Called by** names the functions of this library that call the hook. If you override such a function without
  `super()`, the hook is no longer called.
- **Must hold** is what the rest relies on.
- **Overridden** counts the code bases that override the hook, out of {SCANNED} public ones that subclass or
  drive transformers' Trainer. **For example in** names libraries whose current release overrides it.

[Which way to change it](changing.md) says when a hook is the right place; [worked cases](worked-cases.md) show them.
"""


@cache
def find_callers() -> dict[str, set[str]]:
    """Return the functions of the package that call each method on a trainer, by the name of the method."""
    callers: dict[str, set[str]] = defaultdict(set)
    for path, tree in parse_package().items():
        module = path.replace("/", ".")
        if module.startswith(("tasks", "compat", "cli")):
            continue
        for scope, function in iterate_functions(tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    owner = ast.unparse(node.value)
                    if owner in ("self", "trainer", "host", "run.trainer") or owner.endswith(".trainer"):
                        is_own = module == "trainer" or owner != "self"
                        if is_own:
                            callers[node.attr].add(
                                f"Trainer.{function.name}" if scope == "Trainer" else f"{module}.{function.name}"
                            )
    return callers


def iterate_functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef]]:
    """Return the functions of a module, with the name of the class that each is in."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.append(("", node))
        elif isinstance(node, ast.ClassDef):
            found += [(node.name, part) for part in node.body if isinstance(part, ast.FunctionDef)]
    return found


def format_signature(name: str) -> str:
    """Return the parameters of a hook, without types."""
    parameters = inspect.signature(getattr(Trainer, name)).parameters.values()
    shown = [
        f"{'*' * (one.kind is one.VAR_POSITIONAL) or '**' * (one.kind is one.VAR_KEYWORD)}{one.name}"
        + ("" if one.default is one.empty else f"={one.default!r}" if not hasattr(one.default, "value") else "=…")
        for one in parameters
        if one.name != "self"
    ]
    return f"{name}({', '.join(shown)})"


def format_page() -> str:
    """Return the page as Markdown."""
    lines = [INTRODUCTION]
    for subject, hooks in HOOKS.items():
        lines += [f"## {subject}", ""]
        for name, hook in hooks.items():
            callers = sorted(find_callers().get(name, set()) - {f"Trainer.{name}"})
            lines += [f"### `{name}`", "", f"`{format_signature(name)}`", ""]
            lines.append(f"- **When**: {hook.when}")
            if callers:
                lines.append(f"- **Called by** {', '.join(f'`{caller}`' for caller in callers)}")
            lines.append(f"- **Must hold**: {hook.must}")
            if hook.overridden:
                lines.append(f"- **Overridden** in {hook.overridden} of {SCANNED}")
            if name in OVERRIDES:
                lines.append(f"- **For example in** {', '.join(OVERRIDES[name])}")
            lines.append("")
    overview = ["## All hooks at a glance", "", "| hook | when | overridden |", "|---|---|---|"]
    overview += [
        f"| [`{name}`](#{name}) | {hook.when} | {hook.overridden or ''} |"
        for hooks in HOOKS.values()
        for name, hook in hooks.items()
    ]
    return "\n".join([lines[0], *overview, "", *lines[1:]]).rstrip() + "\n"
