"""Question answering: the answer is a span of the text that the question is about. SQuAD 1.1 and 2.0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ostinato import ConfigError, DataCollatorWithPadding, QuestionAnsweringTrainer, default_data_collator

from .context_windows import Windows, WindowSettings, cut_windows
from .nbest import FoundAnswer, Spans, Window, choose_answer, find_likely_spans, group_windows
from .question_recipe import QuestionRecipe
from .questions import QuestionArguments, answers_of, check_questions
from .recipe import Columns
from .rows import TRAIN, Split
from .task_arguments import flag


@dataclass
class QuestionAnsweringArguments(QuestionArguments):
    """The cutting of long contexts, and the choice of an answer."""

    doc_stride: int = flag(128, "The tokens that neighbouring windows over a long context share.")
    n_best_size: int = flag(20, "The number of starts, ends and answers that are considered.")
    null_score_diff_threshold: float = flag(
        0.0,
        "With --version_2_with_negative: predict no answer if its score exceeds the best answer's by more.",
    )

    def __post_init__(self) -> None:
        if self.doc_stride >= self.max_seq_length:
            raise ConfigError(
                what=f"--doc_stride {self.doc_stride} and --max_seq_length {self.max_seq_length}",
                why="neighbouring windows share --doc_stride tokens, so they would not advance",
                fix=f"--doc_stride {self.max_seq_length // 3}",
            )


class QuestionAnswering(QuestionRecipe):
    """Recipe in which the answer is a span of the context."""

    name = "question-answering"
    summary = "Answer questions by a span of a text; some may have no answer."
    model_class = "AutoModelForQuestionAnswering"
    arguments_class = QuestionAnsweringArguments
    trainer_class = QuestionAnsweringTrainer

    always_pads: ClassVar[bool] = False  # whatever --pad_to_max_length is
    sources: dict[str, str]  # by purpose, for messages

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        splits = super().read(wanted)
        self.sources = {name: split.source for name, split in splits.items()}
        return splits

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        no_answer = self.arguments.version_2_with_negative
        check_questions(splits, needs_starts=True, allows_no_answer=no_answer, columns=self.columns)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in ("question", "context") for text in rows[column])

    # ---- features --------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        self._build_window_settings().check(self.tokenizer)

    def _build_window_settings(self) -> WindowSettings:
        arguments = self.arguments
        length = min(arguments.max_seq_length, self.tokenizer.model_max_length)
        return WindowSettings(length, arguments.doc_stride, self._pads_windows)

    @property
    def _pads_windows(self) -> bool:
        """Return whether windows are padded when they are made. Left padding must be: later it would move tokens."""
        return self.arguments.pad_to_max_length or self.always_pads or self.tokenizer.padding_side == "left"

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        def describe_row(number: int) -> str:
            return f"{self.sources[split]}, id {rows['id'][number]!r}"

        windows = cut_windows(
            self.tokenizer, rows["question"], rows["context"], self._build_window_settings(), describe_row
        )
        if split == TRAIN:
            starts, ends = windows.locate_answers([answers_of(value) for value in rows["answers"]])
            return {
                **windows.columns,
                "start_positions": starts,
                "end_positions": ends,
                **self.build_extra_columns(windows, starts),
            }
        origin = {
            "example_id": [rows["id"][number] for number in windows.row_numbers],
            "offset_mapping": windows.get_context_offsets(),
        }
        return {**windows.columns, **origin, "cls_index": windows.cls_index, **self.build_extra_columns(windows)}

    def build_extra_columns(self, windows: Windows, starts: Sequence[int] | None = None) -> dict[str, Any]:
        """Return further columns that a model needs; in training the starts of answers are known."""
        return {}

    def build_collator(self, model: Any) -> Any:
        if self._pads_windows:
            return default_data_collator
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    # ---- answers ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **super().get_trainer_arguments(splits, features),
            "preprocess_logits_for_metrics": _select_start_and_end_logits,
        }

    def find_answers(self, examples: Any, features: Any, predictions: Any) -> Iterator[FoundAnswer]:
        for example, windows in group_windows(examples, features):
            yield self.choose_answer(example, windows, predictions)

    def choose_answer(self, example: Mapping[str, Any], windows: Sequence[Window], predictions: Any) -> FoundAnswer:
        """Return the answer to one example."""
        arguments, (starts, ends) = self.arguments, predictions
        spans: list[Spans] = []
        null_answer: dict[str, Any] | None = None
        for window in windows:
            start, end = starts[window.number], ends[window.number]
            spans.append(find_likely_spans(window, start, end, arguments.n_best_size, arguments.max_answer_length))
            score = float(start[window.cls_index] + end[window.cls_index])
            if arguments.version_2_with_negative and (null_answer is None or score < null_answer["score"]):
                logits = {"start_logit": float(start[window.cls_index]), "end_logit": float(end[window.cls_index])}
                null_answer = {"text": "", **logits, "score": score}  # the window that is surest of an answer counts
        threshold = arguments.null_score_diff_threshold
        return choose_answer(example, spans, null_answer, n_best=arguments.n_best_size, threshold=threshold)


def _select_start_and_end_logits(logits: Any, labels: Any) -> Any:
    return logits[:2]  # encoder-decoder models return more
