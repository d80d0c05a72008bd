"""Pretraining by masked image modeling (as SimMIM): squares of an image are hidden, and their pixels are restored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ostinato import ConfigError

from .image_reconstruction import ImageReconstruction, ReconstructionArguments
from .rows import TRAIN
from .task_arguments import flag


@dataclass
class MaskedImageArguments(ReconstructionArguments):
    """The squares that are hidden."""

    mask_ratio: float = flag(0.6, "The share of an image that is hidden.")
    mask_patch_size: int = flag(32, "The side of the squares that are hidden, in pixels.")
    encoder_stride: int | None = flag(
        None, "The pixels that a new model's decoder restores for each place of the encoder."
    )
    crop_scale: float = flag(0.67, "The smallest share of an image's area that a random crop keeps.")


class MaskedImageModeling(ImageReconstruction):
    """Recipe that pretrains a ViT, DeiT, Swin or FocalNet on images without labels."""

    name = "image-pretraining-mim"
    summary = "Pretrain a vision model: restore the hidden squares of images (masked image modeling)."
    model_class = "AutoModelForMaskedImageModeling"
    arguments_class: ClassVar[type[MaskedImageArguments]] = MaskedImageArguments

    def prepare_config(self, config: Any) -> None:
        super().prepare_config(config)
        arguments = self.arguments
        if arguments.encoder_stride is not None:
            config.encoder_stride = arguments.encoder_stride
        elif arguments.patch_size is not None and config.model_type in ("vit", "deit"):
            config.encoder_stride = arguments.patch_size  # these models accept no other
        height, width = self.pixels.size
        square, patch = arguments.mask_patch_size, config.patch_size
        if square % patch or height % square or width % square:
            raise ConfigError(
                what=f"--mask_patch_size {square} does not fit images of {width} x {height} and patches of {patch}",
                why="squares consist of whole patches, and the image of whole squares",
                fix=f"--mask_patch_size {patch}, or another multiple of {patch} that divides the image",
            )

    def draw_mask(self, row: Mapping[str, Any], purpose: str) -> np.ndarray:
        """Return which squares of an image are hidden (rows, columns); in evaluation, always the same."""
        height, width = (side // self.arguments.mask_patch_size for side in self.pixels.size)
        order = (
            np.random.permutation(height * width)
            if purpose == TRAIN
            else self.seed_row(row).permutation(height * width)
        )
        hidden = np.zeros(height * width, dtype=bool)
        hidden[order[: math.ceil(height * width * self.arguments.mask_ratio)]] = True
        return hidden.reshape(height, width)

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        pixels = self.compute_pixels(self.open_row(row, purpose), purpose)
        scale = self.arguments.mask_patch_size // self.config.patch_size
        mask = self.draw_mask(row, purpose).repeat(scale, axis=0).repeat(scale, axis=1)
        return {"pixel_values": pixels, "bool_masked_pos": torch.from_numpy(mask.reshape(-1))}

    def restore(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, float]:
        output = self.model(**batch)
        size, patch = self.pixels.size, self.config.patch_size
        hidden = batch["bool_masked_pos"].view(-1, 1, size[0] // patch, size[1] // patch).float()
        hidden = hidden.repeat_interleave(patch, dim=2).repeat_interleave(patch, dim=3)
        return output.reconstruction, hidden.expand_as(batch["pixel_values"]), float(output.loss)
