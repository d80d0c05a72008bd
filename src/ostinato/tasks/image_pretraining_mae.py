"""Pretraining of a masked autoencoder (MAE): most patches are left out, and their pixels are restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .image_reconstruction import ImageReconstruction, ReconstructionArguments
from .rows import TRAIN
from .task_arguments import flag


@dataclass
class AutoencoderArguments(ReconstructionArguments):
    """The target of the reconstruction."""

    norm_pix_loss: bool = flag(True, "Restore pixels relative to the mean and deviation of their patch.")
    crop_scale: float = flag(0.2, "The smallest share of an image's area that a random crop keeps.")


class MaskedAutoencoder(ImageReconstruction):
    """Recipe that pretrains a ViT on images without labels, from a quarter of their patches."""

    name = "image-pretraining-mae"
    summary = "Pretrain a vision model: restore the hidden patches of images (masked autoencoder)."
    model_class = "ViTMAEForPreTraining"
    arguments_class: ClassVar[type[AutoencoderArguments]] = AutoencoderArguments

    def prepare_config(self, config: Any) -> None:
        super().prepare_config(config)
        config.mask_ratio, config.norm_pix_loss = self.arguments.mask_ratio, self.arguments.norm_pix_loss

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        """Return the pixels; in evaluation also the noise that chooses the hidden patches, always the same."""
        features = {"pixel_values": self.compute_pixels(self.open_row(row, purpose), purpose)}
        if purpose != TRAIN:
            height, width = features["pixel_values"].shape[-2:]
            patches = (height // self.config.patch_size) * (width // self.config.patch_size)
            features["noise"] = torch.from_numpy(self.seed_row(row).rand(patches).astype(np.float32))
        return features

    def restore(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, float]:
        model: Any = self.model
        output = model(**batch)
        values = output.logits
        if self.config.norm_pix_loss:
            patches = model.patchify(batch["pixel_values"])
            values = values * (patches.var(dim=-1, keepdim=True) + 1e-6) ** 0.5 + patches.mean(dim=-1, keepdim=True)
        hidden = output.mask[..., None].expand_as(values)
        return model.unpatchify(values), model.unpatchify(hidden), float(output.loss)
