"""Common part of all recipes for questions: their rows, the trainer's extra parts, and the files of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato import EvalPrediction
from ostinato.metrics import metric

from .nbest import FoundAnswer, write_answers
from .questions import answers_of, build_references, read_questions
from .recipe import Recipe
from .rows import VALIDATION, Split


class QuestionRecipe(Recipe):
    """Recipe for rows with a question, a context and answers; predictions for their features become answers."""

    columns = ("question", "context", "answers")  # their names in the rows

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.answers: dict[str, Sequence[FoundAnswer]] = {}  # answers of the last evaluation ("eval") and prediction

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        return read_questions(self.arguments, wanted)

    # ---- answers ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "eval_examples": splits[VALIDATION].rows if VALIDATION in splits else None,
            "post_process_function": self.post_process,
            "compute_metrics": metric("squad_v2" if self.arguments.version_2_with_negative else "squad"),
        }

    def post_process(self, examples: Any, features: Any, predictions: Any, stage: str = "eval") -> EvalPrediction:
        """Return answers to examples and their references; the trainer's `post_process_function`."""
        found = list(self.find_answers(examples, features, predictions))
        self.answers[stage] = found
        answers: Any = [self.format_answer(one) for one in found]
        truth: Any = build_references(examples, self.columns[2])
        return EvalPrediction(predictions=answers, label_ids=truth)

    def find_answers(self, examples: Any, features: Any, predictions: Any) -> Iterator[FoundAnswer]:
        """Yield the answer to every example, in order."""
        raise NotImplementedError

    def format_answer(self, found: FoundAnswer) -> dict[str, Any]:
        """Return an answer in the form that SQuAD's metric expects."""
        no_answer = {"no_answer_probability": 0.0} if self.arguments.version_2_with_negative else {}
        return {"id": found.id, "prediction_text": found.text, **no_answer}

    # ---- results ---------------------------------------------------------------------------------------------

    def predict(self, trainer: Any, features: Any, rows: Any) -> Any:
        return trainer.predict(features, rows, metric_key_prefix="predict", **self.get_generation_arguments())

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        question, _, answers = self.columns
        for row, found in zip(rows, self.answers["predict"], strict=True):
            fields = {"id": row["id"], "question": row[question], "prediction": found.text}
            if found.probability is not None:
                fields["probability"] = round(found.probability, 4)
            yield fields if answers not in row else {**fields, "answers": list(answers_of(row[answers]).texts)}

    def write_evaluation_files(self, rows: Any, directory: Path) -> None:
        write_answers(self.answers.get("eval", ()), directory, "eval")

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        write_answers(self.answers["predict"], directory, "predict")
