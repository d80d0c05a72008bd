"""Image classification: one label for an image, from folders by label, tables of paths or datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .media.image_recipe import ImageArguments, ImageRecipe
from .media.label_recipe import LabelArguments, LabelRecipe


@dataclass
class ImageClassificationArguments(LabelArguments, ImageArguments):
    """The images, and their labels."""


class ImageClassification(LabelRecipe, ImageRecipe):
    """Recipe that predicts a label for every image."""

    name = "image-classification"
    summary = "Classify images: one label for each."
    model_class = "AutoModelForImageClassification"
    arguments_class = ImageClassificationArguments

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        pixels = self.compute_pixels(self.open_row(row, purpose), purpose)
        return {"pixel_values": pixels, **self.encode_label(row, purpose)}

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "image-classification", "tags": ["vision"]}
