"""A trainer on the CPU that prints and reports nothing, for tests that need no more than a run."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import ostinato
from tests.support.apis import QUIET


def build_quiet_trainer(
    directory: Path, model: Any, *, cls: type[ostinato.Trainer] = ostinato.Trainer, **given: Any
) -> Any:
    """Build a trainer; what its constructor does not take is for its `TrainingArguments`."""
    names = {name for one in (cls, ostinato.Trainer) for name in inspect.signature(one.__init__).parameters}
    arguments = {name: given.pop(name) for name in list(given) if name not in names}
    trainer = cls(model, ostinato.TrainingArguments(str(directory), **{**QUIET, **arguments}), **given)
    trainer.remove_callback(ostinato.PrinterCallback)
    return trainer
