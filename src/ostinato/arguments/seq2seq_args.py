"""`Seq2SeqTrainingArguments`: also how text is generated when the model is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from .training_args import TrainingArguments
from .validate import refuse


@dataclass(repr=False)
class Seq2SeqTrainingArguments(TrainingArguments):
    """How to train a model that is evaluated on what it generates.

    >>> args = Seq2SeqTrainingArguments("out", predict_with_generate=True, generation_num_beams=4, use_cpu=True)
    >>> args.generation_num_beams
    4
    """

    sortish_sampler: bool = field(
        default=False, metadata={"help": "Put rows of about the same length together; kept from old scripts."}
    )
    predict_with_generate: bool = field(
        default=False, metadata={"help": "Generate text when evaluating, so that metrics see texts and not logits."}
    )
    generation_max_length: int | None = field(
        default=None, metadata={"help": "The most tokens a generated text has. Not given: what the model says."}
    )
    generation_num_beams: int | None = field(
        default=None, metadata={"help": "How many candidates a search keeps. Not given: what the model says."}
    )
    generation_config: str | Path | Any | None = field(
        default=None,
        metadata={
            "help": "How to generate: a GenerationConfig or a dict of its arguments, or the directory, file or hub "
            "model that holds one."
        },
    )

    def _settle(self) -> None:
        super()._settle()
        refuse(list(_wrong_numbers(self)))
        if self.sortish_sampler:
            note_once("sortish_sampler has no effect; train_sampling_strategy='group_by_length' has the one it names")
        if self.predict_with_generate and self.prediction_loss_only:
            note_once("predict_with_generate has no effect: prediction_loss_only=True keeps nothing but the loss")


def _wrong_numbers(args: Seq2SeqTrainingArguments) -> Iterator[ConfigError]:
    for name in ("generation_max_length", "generation_num_beams"):
        value = getattr(args, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            yield ConfigError(
                what=f"{name}={value!r} is not a whole number of at least 1",
                why=f"it is a {type(value).__name__}" if not isinstance(value, int) else "it is out of range",
                fix=f"the default is {name}=None: what the model says",
            )
