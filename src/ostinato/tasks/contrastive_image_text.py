"""Images and texts in one space: a CLIP, or a vision model and a text model with a projection each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ostinato import DataError
from ostinato.logging import get_logger

from .dual_encoders import (
    DualEncoderArguments,
    build_pair_processor,
    fit_text_config,
    load_pair,
    load_pair_config,
    load_pair_image_processor,
)
from .media.gallery import Picture, write_gallery
from .media.image_recipe import ImageArguments, ImageRecipe
from .models import load_config, load_tokenizer
from .rows import TEST, TRAIN, Split
from .task_arguments import flag
from .text_models import train_recipe_tokenizer
from .text_retrieval import measure_retrieval

_SHOWN_PICTURES, _SHOWN_LINES, _SHOWN_TEXTS = 24, 3, 5
_CAPTION_COLUMNS = ("caption", "text", "captions", "sentence", "title")


@dataclass
class ContrastiveArguments(ImageArguments):
    """The captions, and which part of the model is trained."""

    caption_column: str | None = flag(None, "The column with the captions, if not 'caption' or 'text'.")
    max_seq_length: int = flag(77, "The maximum length of a caption in tokens; longer ones are truncated.")
    freeze_vision_model: bool = flag(False, "Leave the weights of the vision model as they are.")
    freeze_text_model: bool = flag(False, "Leave the weights of the text model as they are.")
    crop_scale: float = flag(0.9, "The smallest share of an image's area that a random crop keeps.")
    horizontal_flip: bool = flag(False, "Mirror training images with probability 0.5; captions may say left or right.")


class ContrastiveImageText(ImageRecipe):
    """Recipe that moves an image and its caption nearer to one another than to the others of a batch."""

    name = "contrastive-image-text"
    summary = "Match images with texts: train a CLIP, or a dual encoder of two models."
    model_class = "AutoModel"
    arguments_class = ContrastiveArguments
    model_arguments_class = DualEncoderArguments
    # The tokens stand for the captions in the metric; the loss is computed by the model.
    defaults = {"label_names": ["input_ids"]}

    caption_column: str
    predicted: list[dict[str, Any]]

    # ---- rows ------------------------------------------------------------------------------------------------

    def find_columns(self, splits: Mapping[str, Split]) -> None:
        super().find_columns(splits)
        first = next(iter(splits.values()))
        usual = (name for name in _CAPTION_COLUMNS if name in first.columns)
        self.caption_column = self.arguments.caption_column or next(usual, "caption")
        for split in splits.values():
            split.require([self.caption_column], {self.caption_column: "--caption_column"})

    def find_bad_values(self, split: Split) -> Iterator[tuple[int, DataError]]:
        return split.find_wrong(
            self.caption_column, _has_caption, "there is no caption", "add a caption, or remove the row"
        )

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        rows = self.training.per_device_train_batch_size
        message = f"reads {self.media_column} and {self.caption_column}"
        if self.training.do_train:
            message += f"; negatives: the other rows of a batch of {rows} (--per_device_train_batch_size)"
            if self.training.gradient_accumulation_steps > 1:
                message += ": gradient accumulation adds none"
        get_logger().info(message)

    def iterate_texts(self, rows: Mapping[str, list[Any]]) -> Iterator[str]:
        return (
            text for value in rows[self.caption_column] for text in (value if isinstance(value, list) else [value])
        )

    def _get_caption(self, row: Mapping[str, Any], purpose: str) -> str:
        """Return the caption of a row; of several, a random one in training, the first otherwise."""
        caption = row[self.caption_column]
        if isinstance(caption, str):
            return caption
        return random.choice(caption) if purpose == TRAIN else caption[0]

    # ---- model -----------------------------------------------------------------------------------------------

    def load_config(self, arguments: Any) -> Any:
        return load_pair_config(arguments) if arguments.is_pair else load_config(arguments)

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        if arguments.train_tokenizer:
            self.tokenizer = train_recipe_tokenizer(self, arguments, self.config.text_config, splits)
            fit_text_config(self.config.text_config, self.tokenizer)
        else:
            self.tokenizer = load_tokenizer(replace(arguments, tokenizer_name=arguments.text_source))
        image_processor = load_pair_image_processor(arguments, self.config, self.arguments.image_size)
        self.set_pixels(image_processor)
        return build_pair_processor(self.config, image_processor, self.tokenizer)

    def load_model(self, arguments: Any) -> Any:
        return load_pair(arguments, self.config) if arguments.is_pair else super().load_model(arguments)

    def prepare_model(self, model: Any) -> None:
        arguments = self.arguments
        for part, is_frozen in (
            ("vision_model", arguments.freeze_vision_model),
            ("text_model", arguments.freeze_text_model),
        ):
            if is_frozen:
                getattr(model, part).requires_grad_(False)
        positions = getattr(self.config.text_config, "max_position_embeddings", None)
        if isinstance(positions, int) and positions < arguments.max_seq_length:
            get_logger().info(f"captions are truncated to {positions} tokens, the positions of the model")
            arguments.max_seq_length = positions

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        text = self.tokenizer(
            self._get_caption(row, purpose),
            max_length=self.arguments.max_seq_length,
            padding="max_length",
            truncation=True,
        )
        pixels = self.compute_pixels(self.open_row(row, purpose), purpose)
        return {
            "pixel_values": pixels,
            "input_ids": torch.tensor(text["input_ids"]),
            "attention_mask": torch.tensor(text["attention_mask"]),
        }

    def build_collator(self, model: Any) -> Any:
        return collate_pairs

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {"compute_metrics": measure_recall, "preprocess_logits_for_metrics": select_embeddings}

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        images, texts = (_normalize(each) for each in output.predictions)
        captions = [self._get_caption(row, TEST) for row in rows]
        distinct = {caption: number for number, caption in reversed(list(enumerate(captions)))}
        names, places = list(distinct), list(distinct.values())
        self.predicted = []
        for row, image, caption in zip(rows, images, captions, strict=True):
            scores = texts[places] @ image
            best = np.argsort(-scores, kind="stable")[:_SHOWN_TEXTS]
            own = scores[names.index(caption)]
            line = {
                "image": self.find_file(row),
                "caption": caption,
                "rank": int((scores >= own).sum()),
                "found": [{"caption": names[n], "cosine": round(float(scores[n]), 4)} for n in best],
            }
            self.predicted.append(line)
            yield line

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            yield f"{line['image']}: {line['found'][0]['caption']!r} (its own caption: rank {line['rank']})"

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Draw images with the caption that was found for each."""
        chosen = range(0, len(rows), max(1, len(rows) // _SHOWN_PICTURES))
        pictures = [
            Picture(
                self.open_row(rows[number], TEST),
                line["found"][0]["caption"],
                "" if line["rank"] == 1 else f"its own: {line['caption']} (rank {line['rank']})",
                "right" if line["rank"] == 1 else "wrong",
            )
            for number in chosen
            for line in [self.predicted[number]]
        ]
        write_gallery(directory, "captions", "Captions found", pictures, "of all captions, the nearest to each image")

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "zero-shot-image-classification", "tags": ["vision", "clip"]}


def collate_pairs(rows: list[dict[str, Tensor]]) -> dict[str, Any]:
    """Return a batch for a model that computes the contrastive loss itself."""
    return {**{name: torch.stack([row[name] for row in rows]) for name in rows[0]}, "return_loss": True}


def select_embeddings(outputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return the vectors of images and texts, of all that the model returns."""
    _, _, texts, images = outputs[:4]
    return images, texts


def measure_recall(prediction: Any) -> dict[str, float]:
    """Return how often the right text is among the first 1, 5 and 10 for an image, and the other way round."""
    images, texts = prediction.predictions
    captions = np.unique(prediction.label_ids, axis=0, return_inverse=True)[1].reshape(-1)
    pictures = len(captions) + np.arange(len(images))
    result = {}
    for name, vectors, numbers in (
        ("image_to_text", (images, texts), (pictures, captions)),
        ("text_to_image", (texts, images), (captions, pictures)),
    ):
        scores = measure_retrieval(np.stack(vectors, axis=1), np.stack(numbers, axis=1))
        result |= {f"{name}_{key}": value for key, value in scores.items()}
    return result


def _normalize(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _has_caption(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_has_caption, value))
    return isinstance(value, str) and bool(value.strip())
