"""The arguments of the two short runs that `verify_resume` compares."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .training_args import TrainingArguments


def build_verification_arguments(
    args: TrainingArguments, directory: Path, steps: int, longest: int
) -> TrainingArguments:
    """Return a copy of `args` that saves once, after `steps`, into `directory`.

    The planned length stays what it was, since schedules depend on it; only a run shorter than twice `steps` is
    made longer, to `longest`.
    """
    changed = copy.copy(args)
    vars(changed)["_record"] = args._record.copy()
    changed.ostinato = replace(args.ostinato, save_errors="raise", rehearse=False)
    return changed._change(
        output_dir=str(directory),
        **({"max_steps": longest} if longest == 2 * steps or args.max_steps > 0 else {}),
        save_strategy="steps",
        save_steps=steps,
        save_total_limit=None,
        save_only_model=False,
        load_best_model_at_end=False,
        eval_on_start=False,
        push_to_hub=False,
    )
