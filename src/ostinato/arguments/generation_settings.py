"""The settings of text generation in evaluations."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import usage_errors

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class GenerationSettings:
    """Whether evaluations generate text, and the defaults of generation."""

    in_evaluation: bool  # `predict_with_generate`
    max_length: int | None
    num_beams: int | None
    config: Any  # `generation_config` as it was given: an object, a dict, a path, a name

    @classmethod
    def of(cls, args: TrainingArguments) -> GenerationSettings:
        """Return the settings of `args`; plain `TrainingArguments` have none."""
        return cls(
            in_evaluation=getattr(args, "predict_with_generate", False),
            max_length=getattr(args, "generation_max_length", None),
            num_beams=getattr(args, "generation_num_beams", None),
            config=getattr(args, "generation_config", None),
        )

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call, completed by the length and number of beams of the arguments.

        >>> GenerationSettings(True, max_length=20, num_beams=4, config=None).options({"max_new_tokens": 5})
        {'max_new_tokens': 5, 'num_beams': 4}
        """
        options = dict(given)
        has_length = options.get("max_length") is not None or options.get("max_new_tokens") is not None
        if self.max_length is not None and not has_length:
            options["max_length"] = self.max_length
        if self.num_beams is not None and options.get("num_beams") is None:
            options["num_beams"] = self.num_beams
        return options


def load_generation_config(given: Any) -> Any:
    """Return a new `GenerationConfig` from an object, a dict, a directory, a file or a model on the hub."""
    from transformers import GenerationConfig  # noqa: PLC0415 - optional

    if not isinstance(given, (GenerationConfig, Mapping, str, os.PathLike)):
        raise usage_errors.no_generation_config(given)
    try:
        config = _make_config(GenerationConfig, given)
        config.validate(strict=True)
    except usage_errors.UnreadableGenerationError:
        raise
    except ValueError as reason:
        raise usage_errors.invalid_generation_config(reason) from None
    return config


def _make_config(kind: Any, given: Any) -> Any:
    if isinstance(given, kind):
        return copy.deepcopy(given)
    if isinstance(given, Mapping):
        return kind(**given)
    path = Path(given)
    try:
        if path.is_file():
            return kind.from_pretrained(path.parent, config_file_name=path.name)
        return kind.from_pretrained(given)
    except (OSError, TypeError) as reason:
        raise usage_errors.unreadable_generation_config(given, reason) from None
