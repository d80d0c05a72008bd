"""`Seq2SeqTrainingArguments`: training with generation of text in evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.notices import note_once
from .argument import Range, argument
from .training_args import TrainingArguments


@dataclass(repr=False)
class Seq2SeqTrainingArguments(TrainingArguments):
    """The arguments of a training run with generation of text in evaluations.

    Args:
        *args: Arguments of `TrainingArguments`, by position.
        **kwargs: Arguments of `TrainingArguments` and of generation, by name.

    Raises:
        ConfigError: If values are invalid or contradict one another.

    Example:
        >>> args = Seq2SeqTrainingArguments("out", predict_with_generate=True, generation_num_beams=4, use_cpu=True)
        >>> args.generation_num_beams
        4
    """

    sortish_sampler: bool = argument(
        False, help="Accepted for compatibility: use train_sampling_strategy=group_by_length.", on_resume=None
    )
    predict_with_generate: bool = argument(
        False,
        help="Generate text in evaluations, so that metrics receive generated tokens instead of logits.",
        on_resume=None,
    )
    generation_max_length: int | None = argument(
        None,
        help="Maximum number of tokens of a generated text. Default: the model's setting.",
        number=Range(minimum=1, whole=True),
        on_resume=None,
    )
    generation_num_beams: int | None = argument(
        None,
        help="Number of beams in beam search. Default: the model's setting.",
        number=Range(minimum=1, whole=True),
        on_resume=None,
    )
    generation_config: str | Path | Any | None = argument(
        None,
        help="How text is generated: a GenerationConfig, a dict of its arguments, or the directory, file or hub model "
        "that contains one.",
        on_resume=None,
    )

    def _check_and_derive(self) -> None:
        super()._check_and_derive()
        if self.sortish_sampler:
            note_once("sortish_sampler has no effect; use train_sampling_strategy='group_by_length'")
        if self.predict_with_generate and self.prediction_loss_only:
            note_once("predict_with_generate has no effect: prediction_loss_only=True computes only the loss")
