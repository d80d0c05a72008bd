"""Training arguments for tests that do not train."""

from __future__ import annotations

from typing import Any

from ostinato import TrainingArguments


def build_arguments(**arguments: Any) -> TrainingArguments:
    """Return arguments for the CPU; those given override the defaults."""
    return TrainingArguments(**{"output_dir": "out", "use_cpu": True, **arguments})
