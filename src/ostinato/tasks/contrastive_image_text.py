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

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger

from .media.gallery import Picture, write_gallery
from .media.image_processors import create_image_processor, find_image_size, load_image_processor, set_size
from .media.image_recipe import ImageArguments, ImageModelArguments, ImageRecipe
from .models import build_hub_arguments, import_transformers, load_config, load_pretrained, load_tokenizer
from .rows import TEST, TRAIN, Split
from .task_arguments import TokenizerArguments, flag
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


@dataclass
class ContrastiveModelArguments(TokenizerArguments, ImageModelArguments):
    """A dual encoder of two models, in place of one that is named whole."""

    vision_model_name_or_path: str | None = flag(None, "The vision model of a new dual encoder, by path or name.")
    text_model_name_or_path: str | None = flag(None, "The text model of a new dual encoder, by path or name.")

    @property
    def is_pair(self) -> bool:
        return self.vision_model_name_or_path is not None or self.text_model_name_or_path is not None


class ContrastiveImageText(ImageRecipe):
    """Recipe that moves an image and its caption nearer to one another than to the others of a batch."""

    name = "contrastive-image-text"
    summary = "Match images with texts: train a CLIP, or a dual encoder of two models."
    model_class = "AutoModel"
    arguments_class = ContrastiveArguments
    model_arguments_class = ContrastiveModelArguments
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
        if not arguments.is_pair:
            return load_config(arguments)
        if arguments.vision_model_name_or_path is None or arguments.text_model_name_or_path is None:
            raise ConfigError(
                what="a dual encoder of one model",
                why="--vision_model_name_or_path and --text_model_name_or_path belong together",
                fix="name both; or a whole model with --model_name_or_path",
            )
        vision, text = (
            load_config(replace(arguments, model_name_or_path=name))
            for name in (arguments.vision_model_name_or_path, arguments.text_model_name_or_path)
        )
        vision = getattr(vision, "vision_config", vision)  # of a CLIP, its vision part
        kind = import_transformers().VisionTextDualEncoderConfig
        return kind.from_vision_text_configs(vision, text)

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        transformers = import_transformers()
        if arguments.train_tokenizer:
            self.tokenizer = train_recipe_tokenizer(self, arguments, self.config.text_config, splits)
            _fit_text_config(self.config.text_config, self.tokenizer)
        else:
            named = arguments.tokenizer_name or arguments.text_model_name_or_path
            self.tokenizer = load_tokenizer(replace(arguments, tokenizer_name=named))
        images = replace(
            arguments, model_name_or_path=arguments.vision_model_name_or_path or arguments.model_name_or_path
        )
        if images.model_name_or_path is None and arguments.image_processor_name is None:
            image_processor = create_image_processor(self.config)
            set_size(image_processor, self.arguments.image_size or find_image_size(self.config))
        else:
            name, size = arguments.image_processor_name, self.arguments.image_size
            image_processor = load_image_processor(images, name, self.config, size)
        self.set_pixels(image_processor)
        is_clip = self.config.model_type == "clip"
        kind = transformers.CLIPProcessor if is_clip else transformers.VisionTextDualEncoderProcessor
        return kind(image_processor, self.tokenizer)

    def load_model(self, arguments: Any) -> Any:
        if not arguments.is_pair:
            return super().load_model(arguments)
        kind, options = import_transformers().VisionTextDualEncoderModel, build_hub_arguments(arguments)
        names = arguments.vision_model_name_or_path, arguments.text_model_name_or_path
        vision, text = (
            load_pretrained(import_transformers().AutoModel, name, "model", config=config, **options)
            for name, config in zip(names, (self.config.vision_config, self.config.text_config), strict=True)
        )
        model = kind(config=self.config, vision_model=getattr(vision, "vision_model", vision), text_model=text)
        get_logger().info("the projections of the two models into one space are new")
        return model

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


def _fit_text_config(config: Any, tokenizer: Any) -> None:
    """Write the size and the special ids of a trained tokenizer into the config of a new text model."""
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.bos_token_id = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    config.eos_token_id = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
