"""The base of recipes that transcribe speech: texts, their characters, error rates, transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import DataError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from ..ctc_vocabulary import TextCleaner, parse_ignored
from ..rows import TEST, Split
from ..task_arguments import flag
from .audio_recipe import AudioArguments, AudioRecipe
from .gallery import Picture, write_gallery

TEXT_COLUMNS = ("text", "sentence", "transcription", "transcript")
IGNORE_INDEX = -100
_SHOWN_PICTURES, _SHOWN_LINES = 24, 3


@dataclass
class SpeechArguments(AudioArguments):
    """The texts, and how long recordings may be."""

    text_column_name: str | None = flag(None, "The column with the texts, if not 'text' or 'sentence'.")
    do_lower_case: bool = flag(True, "Whether texts are recognized in lower case.")
    chars_to_ignore: list[str] | None = flag(None, "Characters that are removed from the texts, such as , . ?")
    min_duration_in_seconds: float = flag(0.0, "Leave out shorter recordings, except for prediction.")
    max_duration_in_seconds: float = flag(20.0, "Leave out longer recordings, except for prediction.")
    eval_metrics: list[str] = flag(["wer", "cer"], "What is measured: wer, cer.")


class SpeechRecipe(AudioRecipe):
    """A task with a text for each recording. A recipe defines `decode_texts`."""

    arguments_class = SpeechArguments

    text_column: str
    clean: TextCleaner
    predicted: list[dict[str, Any]]

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.clean = TextCleaner(parse_ignored(arguments.chars_to_ignore), arguments.do_lower_case)

    def get_length_limits(self) -> tuple[float, float]:
        return self.arguments.min_duration_in_seconds, self.arguments.max_duration_in_seconds

    def find_columns(self, splits: Mapping[str, Split]) -> None:
        super().find_columns(splits)
        first = next(iter(splits.values()))
        found = [name for name in TEXT_COLUMNS if name in first.columns]
        self.text_column = self.arguments.text_column_name or (found[0] if found else TEXT_COLUMNS[0])
        for name, split in splits.items():
            if not name.startswith(TEST):
                split.require([self.text_column], {self.text_column: "--text_column_name"})

    def find_bad_values(self, split: Split) -> Iterator[tuple[int, DataError]]:
        if not split.name.startswith(TEST):
            yield from split.find_wrong(
                self.text_column, self._is_text, "there is no text to recognize", "add the text, or remove the row"
            )

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        get_logger().info(f"reads {self.media_column}, writes {self.text_column}")

    def _is_text(self, value: Any) -> bool:
        return isinstance(value, str) and bool(self.clean(value))

    def find_text(self, row: Mapping[str, Any]) -> str | None:
        """Return the text of a row as it is to be recognized; None if it has none."""
        value = row.get(self.text_column)
        return self.clean(value) if isinstance(value, str) and self.clean(value) else None

    # ---- features --------------------------------------------------------------------------------------------

    def build_features(self, split: Split) -> Any:
        if not split.name.startswith(TEST):
            split = self.reject_rows(split, self.find_bad_texts(split))
        return super().build_features(split)

    def find_bad_texts(self, split: Split) -> Iterator[tuple[int, DataError]]:
        """Yield the rows with a text that tokenizer or model cannot take, with an error."""
        raise NotImplementedError

    def read_texts(self, split: Split) -> list[str]:
        """Return the texts of a split as they are to be recognized."""
        return [self.clean(text) for text in split.read_column(self.text_column)]

    # ---- trainer ---------------------------------------------------------------------------------------------

    def decode_texts(self, ids: np.ndarray, *, are_labels: bool) -> list[str]:
        """Return the texts of predicted ids, or of labels; both are filled up with -100."""
        raise NotImplementedError

    def build_metric(self) -> Callable[[Any], dict[str, float]]:
        """Return the function that compares the texts of an evaluation."""
        measure = metrics(list(self.arguments.eval_metrics))

        def compute(prediction: Any) -> dict[str, float]:
            written = self.decode_texts(get_ids(prediction.predictions), are_labels=False)
            spoken = self.decode_texts(prediction.label_ids, are_labels=True)
            return dict(measure((written, spoken)))

        return compute

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        self.predicted = []
        for row, text in zip(rows, self.decode_texts(get_ids(output.predictions), are_labels=False), strict=True):
            spoken = self.find_text(row)
            reference = {} if spoken is None else {"text": spoken}
            self.predicted.append({"audio": self.find_file(row), **reference, "prediction": text})
            yield self.predicted[-1]

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            is_other = line.get("text", line["prediction"]) != line["prediction"]
            yield f"{line['audio']}: {line['prediction']!r}" + (f" (is {line['text']!r})" if is_other else "")

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Draw some recordings, with the spoken and the recognized text."""
        step = max(1, len(rows) // _SHOWN_PICTURES)
        pictures = [self._draw(rows[n], self.predicted[n]) for n in range(0, len(rows), step)][:_SHOWN_PICTURES]
        write_gallery(directory, "predictions", "Transcripts", pictures)

    def _draw(self, row: Mapping[str, Any], line: Mapping[str, Any]) -> Picture:
        mark = "" if "text" not in line else "right" if line["text"] == line["prediction"] else "wrong"
        spoken = f", is “{line['text']}”" if mark == "wrong" else ""
        return Picture(self.draw_row(row), f"“{line['prediction']}”{spoken}", line["audio"], mark)

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "automatic-speech-recognition"}


def get_ids(predictions: Any) -> np.ndarray:
    """Return the ids of predictions, which may come with further outputs."""
    return predictions[0] if isinstance(predictions, tuple) else predictions
