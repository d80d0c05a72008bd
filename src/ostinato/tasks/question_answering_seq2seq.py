"""Question answering by generation: the model reads the question and its context, and writes the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError, DataCollatorForSeq2Seq, QuestionAnsweringSeq2SeqTrainer, Seq2SeqTrainingArguments

from .nbest import FoundAnswer
from .question_recipe import QuestionRecipe
from .questions import QuestionArguments, answers_of, check_questions
from .recipe import Columns
from .rows import TEST, VALIDATION, Split
from .task_arguments import flag

_IGNORE_INDEX = -100


@dataclass
class QuestionAnsweringSeq2SeqArguments(QuestionArguments):
    """The columns that are read, and the generation of answers."""

    question_column: str = flag("question", "The column with the question.")
    context_column: str = flag("context", "The column with the text that the question is about.")
    answer_column: str = flag("answers", "The column with the answers.")
    val_max_answer_length: int | None = flag(
        None, "The maximum length of an answer in evaluation. By default --max_answer_length."
    )
    num_beams: int | None = flag(None, "The number of beams in evaluation.")
    ignore_pad_token_for_loss: bool = flag(True, "Whether the padding of answers is left out of the loss.")
    doc_stride: int = flag(
        128, "Accepted without effect: a context that is too long is truncated, not cut into windows."
    )
    n_best_size: int = flag(20, "Accepted without effect: one answer is generated.")
    null_score_diff_threshold: float = flag(0.0, "Accepted without effect: an empty text stands for no answer.")


class QuestionAnsweringSeq2Seq(QuestionRecipe):
    """Recipe in which the answer is generated."""

    name = "question-answering-seq2seq"
    summary = "Answer questions about a text in words, with an encoder-decoder model."
    model_class = "AutoModelForSeq2SeqLM"
    arguments_class = QuestionAnsweringSeq2SeqArguments
    training_class = Seq2SeqTrainingArguments
    trainer_class = QuestionAnsweringSeq2SeqTrainer

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        if training.do_predict and not training.predict_with_generate:
            raise ConfigError(
                what="--do_predict without --predict_with_generate",
                why="predictions are generated answers",
                fix="add --predict_with_generate, or remove --do_predict",
            )
        self.columns = (arguments.question_column, arguments.context_column, arguments.answer_column)
        if training.generation_max_length is None:  # so that evaluations during training generate as those after it do
            training.generation_max_length = arguments.val_max_answer_length or arguments.max_answer_length
        if arguments.num_beams is not None:
            training.generation_num_beams = arguments.num_beams

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        options = ("--question_column", "--context_column", "--answer_column")
        for name, split in splits.items():
            needed = self.columns[:2] if name == TEST else self.columns
            split.require(needed, dict(zip(self.columns, options, strict=True)))
        no_answer = self.arguments.version_2_with_negative
        check_questions(splits, needs_starts=False, allows_no_answer=no_answer, columns=self.columns)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return iter(self.build_prompts(rows))

    def build_prompts(self, rows: Columns) -> list[str]:
        """Return the texts that the model reads."""
        question_column, context_column, _ = self.columns
        return [
            f"question: {question.lstrip()} context: {context.lstrip()}"
            for question, context in zip(rows[question_column], rows[context_column], strict=True)
        ]

    # ---- features --------------------------------------------------------------------------------------------

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        settings, tokenizer, answers = self.arguments, self.tokenizer, self.columns[2]
        padding = "max_length" if settings.pad_to_max_length else False
        length = min(settings.max_seq_length, tokenizer.model_max_length)
        features = dict(tokenizer(self.build_prompts(rows), max_length=length, padding=padding, truncation=True))
        if split == TEST and answers not in rows:
            return {**features, "example_id": rows["id"]}
        texts = [next(iter(answers_of(value).texts), "") for value in rows[answers]]
        longest = settings.max_answer_length if split != VALIDATION else self.eval_answer_length
        labels = tokenizer(text_target=texts, max_length=longest, padding=padding, truncation=True)["input_ids"]
        if settings.pad_to_max_length and settings.ignore_pad_token_for_loss:
            labels = [[_IGNORE_INDEX if one == tokenizer.pad_token_id else one for one in ids] for ids in labels]
        return {**features, "labels": labels, "example_id": rows["id"]}

    @property
    def eval_answer_length(self) -> int:
        """Return how many tokens an answer may have in evaluation."""
        return self.arguments.val_max_answer_length or self.arguments.max_answer_length

    def build_collator(self, model: Any) -> Any:
        ignored = _IGNORE_INDEX if self.arguments.ignore_pad_token_for_loss else self.tokenizer.pad_token_id
        multiple = 8 if self.training.fp16 else None
        return DataCollatorForSeq2Seq(
            self.tokenizer, model=model, label_pad_token_id=ignored, pad_to_multiple_of=multiple
        )

    # ---- answers ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        parts = super().get_trainer_arguments(splits, features)
        return parts if self.training.predict_with_generate else {**parts, "compute_metrics": None}

    def find_answers(self, examples: Any, features: Any, predictions: Any) -> Iterator[FoundAnswer]:
        ids = predictions.predictions
        ids = np.where(ids < 0, self.tokenizer.pad_token_id, ids)
        written = (text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True))
        by_id = dict(zip(features["example_id"], written, strict=True))
        return (FoundAnswer(name, by_id[name]) for name in examples["id"])
