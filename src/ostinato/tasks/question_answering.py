"""Question answering: the answer is a span of the text that the question is about. SQuAD 1.1 and 2.0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ostinato import ConfigError, DataCollatorWithPadding, QuestionAnsweringTrainer, default_data_collator

from .context_windows import Windows, WindowSettings, cut
from .nbest import Found, Spans, Window, by_example, likely_spans, with_silence
from .question_recipe import QuestionRecipe
from .questions import QuestionArguments, answers_of, check_questions
from .recipe import Columns
from .rows import TRAIN, Split
from .task_arguments import flag


@dataclass
class QuestionAnsweringArguments(QuestionArguments):
    """The cutting of long contexts, and the choice of an answer."""

    doc_stride: int = flag(128, "A long context is cut into windows that share so many tokens.")
    n_best_size: int = flag(20, "How many starts, ends and answers are considered.")
    null_score_diff_threshold: float = flag(
        0.0, "With --version_2_with_negative: by how much silence must be better than the best answer to be chosen."
    )

    def __post_init__(self) -> None:
        if self.doc_stride >= self.max_seq_length:
            raise ConfigError(
                what=f"--doc_stride {self.doc_stride} and --max_seq_length {self.max_seq_length}",
                why="neighbouring windows share --doc_stride tokens of the context, so none would come further",
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
        silent = self.arguments.version_2_with_negative
        check_questions(splits, with_places=True, may_be_silent=silent, columns=self.columns)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in ("question", "context") for text in rows[column])

    # ---- features --------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        self._cutting().check(self.tokenizer)

    def _cutting(self) -> WindowSettings:
        asked = self.arguments
        length = min(asked.max_seq_length, self.tokenizer.model_max_length)
        return WindowSettings(length, asked.doc_stride, self._pads)

    @property
    def _pads(self) -> bool:
        """Return whether windows are padded when they are made. Left padding must be: later it would move tokens."""
        return self.arguments.pad_to_max_length or self.always_pads or self.tokenizer.padding_side == "left"

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        def called(number: int) -> str:
            return f"{self.sources[split]}, id {rows['id'][number]!r}"

        windows = cut(self.tokenizer, rows["question"], rows["context"], self._cutting(), called)
        if split == TRAIN:
            starts, ends = windows.spans([answers_of(value) for value in rows["answers"]])
            return {**windows.columns, "start_positions": starts, "end_positions": ends, **self.more(windows, starts)}
        asked = {"example_id": [rows["id"][number] for number in windows.of], "offset_mapping": windows.places()}
        return {**windows.columns, **asked, "cls_index": windows.rest, **self.more(windows)}

    def more(self, windows: Windows, starts: Sequence[int] | None = None) -> dict[str, Any]:
        """Return further columns that a model needs; in training the starts of answers are known."""
        return {}

    def build_collator(self, model: Any) -> Any:
        if self._pads:
            return default_data_collator
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    # ---- answers ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().get_trainer_arguments(splits, features), "preprocess_logits_for_metrics": _starts_and_ends}

    def find(self, examples: Any, features: Any, predictions: Any) -> Iterator[Found]:
        for example, windows in by_example(examples, features):
            yield self.choose(example, windows, predictions)

    def choose(self, example: Mapping[str, Any], windows: Sequence[Window], predictions: Any) -> Found:
        """Return the answer to one example."""
        asked, (starts, ends) = self.arguments, predictions
        spans: list[Spans] = []
        silence: dict[str, Any] | None = None
        for window in windows:
            start, end = starts[window.number], ends[window.number]
            spans.append(likely_spans(window, start, end, asked.n_best_size, asked.max_answer_length))
            score = float(start[window.rest] + end[window.rest])
            if asked.version_2_with_negative and (silence is None or score < silence["score"]):
                logits = {"start_logit": float(start[window.rest]), "end_logit": float(end[window.rest])}
                silence = {"text": "", **logits, "score": score}  # the window that is surest of an answer counts
        threshold = asked.null_score_diff_threshold
        return with_silence(example, spans, silence, n_best=asked.n_best_size, threshold=threshold)


def _starts_and_ends(logits: Any, labels: Any) -> Any:
    return logits[:2]  # encoder-decoder models return more
