"""The arguments of the runs that `verify_resume` compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato import TrainingArguments
from ostinato.arguments.verification import build_verification_arguments


@pytest.mark.parametrize(
    ("max_steps", "longest", "expected"),
    [(-1, 100, -1), (-1, 6, 6), (50, 50, 50), (4, 6, 6)],
    ids=["epochs", "few epochs", "steps", "few steps"],
)
def test_a_run_is_made_longer_and_never_shorter(max_steps: int, longest: int, expected: int) -> None:
    args = TrainingArguments("out", max_steps=max_steps, use_cpu=True)
    assert build_verification_arguments(args, Path("elsewhere"), 3, longest).max_steps == expected


def test_verification_saves_once_in_another_directory() -> None:
    args = TrainingArguments("out", save_strategy="no", rehearse=True, use_cpu=True)
    changed = build_verification_arguments(args, Path("elsewhere"), 3, 6)
    assert (changed.output_dir, changed.save_strategy, changed.save_steps) == ("elsewhere", "steps", 3)
    assert (args.output_dir, args.save_strategy, args.rehearse) == ("out", "no", True)
    args.validate()  # its record of changes is its own
