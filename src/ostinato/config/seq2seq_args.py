"""`Seq2SeqTrainingArguments`: also how text is generated when the model is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.notices import note_once
from .training_args import TrainingArguments


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
    generation_config: Any = field(
        default=None,
        metadata={"help": "How to generate: a GenerationConfig, or the directory, file or hub model that holds one."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sortish_sampler:
            note_once("sortish_sampler has no effect; train_sampling_strategy='group_by_length' has the one it names")
