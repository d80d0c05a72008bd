"""Pretraining of a masked autoencoder (MAE): most patches are left out, and their pixels are restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

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

    def load_model(self, arguments: Any) -> Any:
        """Return the model; a new one has the tables of positions of the paper, where transformers leaves zeros."""
        model = super().load_model(arguments)
        if arguments.model_name_or_path is None:
            patches = model.vit.embeddings.patch_embeddings
            height, width = (side // size for side, size in zip(patches.image_size, patches.patch_size, strict=True))
            for table in (model.vit.embeddings.position_embeddings, model.decoder.decoder_pos_embed):
                if not table.any():
                    table.data[0, 1:] = build_positions(height, width, table.shape[-1]).to(table.dtype)
        return model

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


def build_positions(height: int, width: int, units: int) -> Tensor:
    """Return sines and cosines for the places of an image: of the columns, then of the rows.

    >>> build_positions(1, 2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0000, 1.0000]])
    """
    count = units // 4
    rates = 10_000.0 ** -(torch.arange(count, dtype=torch.float64) / count)
    row, column = (
        places.reshape(-1, 1) * rates
        for places in torch.meshgrid(
            torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64), indexing="ij"
        )
    )
    table = torch.cat([column.sin(), column.cos(), row.sin(), row.cos()], dim=1).float()
    return nn.functional.pad(table, (0, units - table.shape[1]))
