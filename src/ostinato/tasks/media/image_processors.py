"""Image processors of transformers, and the pixels they make of an image.

They are used with their Pillow back end, so the same image gives the same numbers with and without torchvision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ostinato import ConfigError

from ..models import build_hub_arguments, import_transformers, load_pretrained
from ..task_arguments import ModelArguments
from .images import import_pillow

_DEFAULT_SIZE = 224


def load_image_processor(arguments: ModelArguments, name: str | None, config: Any, image_size: int | None) -> Any:
    """Return the processor of a name, or of the model; for a new model, a new one of its kind that fits the config."""
    transformers = import_transformers()
    import_pillow()
    named = name or arguments.model_name_or_path
    if named is not None:
        processor = load_pretrained(
            transformers.AutoImageProcessor, named, "image processor", backend="pil", **build_hub_arguments(arguments)
        )
    else:
        processor = create_image_processor(config)
    size = image_size if named is not None else image_size or find_image_size(config)
    if size is not None:
        set_size(processor, size)
    return processor


def create_image_processor(config: Any) -> Any:
    """Return a new processor of the kind that a model uses; grey if the model takes one channel."""
    transformers = import_transformers()
    known = dict(transformers.models.auto.image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES)
    vision = getattr(config, "vision_config", config)
    types = (vision.model_type, vision.model_type.removesuffix("_vision_model"), config.model_type)
    names = next((known[one] for one in types if one in known), {})
    kind = getattr(transformers, names["pil"], None) if names.get("pil") else None
    if kind is None:
        raise ConfigError(
            what=f"{vision.model_type} has no image processor",
            why="transformers knows none for this type of model",
            fix="name one with --image_processor_name, or choose a type of model for images: vit, convnext, swin, …",
        )
    processor = kind()
    if getattr(vision, "num_channels", 3) == 1:
        processor.image_mean, processor.image_std = [0.5], [0.5]
        if "do_convert_rgb" in vars(processor):
            processor.do_convert_rgb = False
    return processor


def find_image_size(config: Any) -> int:
    """Return the side of the images that a new model takes."""
    size = getattr(getattr(config, "vision_config", config), "image_size", None)
    return int(size[0] if isinstance(size, (list, tuple)) else size or _DEFAULT_SIZE)


def set_size(processor: Any, side: int) -> None:
    """Make a processor produce square images, by whatever of its settings say so."""
    by_edge = "shortest_edge" in processor.size and processor.size["shortest_edge"] is not None
    processor.size = {"shortest_edge": side} if by_edge else {"height": side, "width": side}
    if getattr(processor, "crop_size", None) is not None:
        processor.crop_size = {"height": side, "width": side}
    if getattr(processor, "crop_pct", None) is not None:
        processor.crop_pct = 1.0


class Pixels:
    """Pixel values of images, as a processor makes them.

    Where a processor maps every value of a channel by itself, which is checked once, a table of the 256 results takes
    its place for images that have the right size already: the same numbers, much faster.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.channels = len(processor.image_mean) if getattr(processor, "image_mean", None) is not None else 3
        self.mode = "L" if self.channels == 1 else "RGB"
        probe = np.random.RandomState(0).randint(0, 256, (32, 32, self.channels)).astype(np.uint8)
        self.size = self._find_size(probe)
        self._table = self._build_table(self._enlarge(probe))

    def process(self, image: Any) -> Tensor:
        """Return what the processor makes of an image of Pillow, of any size: (channels, height, width)."""
        return torch.from_numpy(self._call(np.asarray(image)))

    def convert(self, image: Any) -> Tensor:
        """Return the values of an image that is not to be resized or cropped."""
        values = _add_channel(np.asarray(image))
        if self._table is None:
            return torch.from_numpy(self._call(values, **self._keep_size))
        return torch.from_numpy(self._look_up(values))

    def restore(self, values: Tensor) -> np.ndarray:
        """Return the image (height, width, channels) of 8 bits that pixel values stand for."""
        mean, std = (
            np.asarray(getattr(self.processor, name, None) or [default], dtype=np.float32).reshape(-1, 1, 1)
            for name, default in (("image_mean", 0.0), ("image_std", 1.0))
        )
        array = values.detach().float().cpu().numpy()
        if getattr(self.processor, "do_normalize", True):
            array = array * std + mean
        image = np.clip(np.round(array * 255), 0, 255).astype(np.uint8)
        return image.transpose(1, 2, 0)

    _keep_size: Mapping[str, Any] = {"do_resize": False, "do_center_crop": False, "do_pad": False}

    def _call(self, values: np.ndarray, **options: Any) -> np.ndarray:
        known = {name: value for name, value in options.items() if getattr(self.processor, name, None) is not None}
        made = self.processor(_add_channel(values), input_data_format="channels_last", return_tensors="np", **known)
        return made["pixel_values"][0]

    def _find_size(self, probe: np.ndarray) -> tuple[int, int]:
        height, width = self._call(probe).shape[-2:]
        return int(height), int(width)

    def _enlarge(self, probe: np.ndarray) -> np.ndarray:
        height, width = self.size
        return np.tile(probe, (height // 32 + 1, width // 32 + 1, 1))[:height, :width]

    def _build_table(self, probe: np.ndarray) -> np.ndarray | None:
        """Return the value of every byte of each channel; None if a probe shows that there is no such table."""
        ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (1, 256, self.channels))
        try:
            self._table = np.ascontiguousarray(self._call(ramp, **self._keep_size)[:, 0])
            expected = self._call(probe, **self._keep_size)
        except (ValueError, TypeError, IndexError):
            return None
        is_right = self._table.shape == (self.channels, 256) and np.array_equal(self._look_up(probe), expected)
        return self._table if is_right else None

    def _look_up(self, values: np.ndarray) -> np.ndarray:
        assert self._table is not None
        found = np.empty((self.channels, *values.shape[:2]), dtype=self._table.dtype)
        for channel, table in enumerate(self._table):
            np.take(table, values[..., channel], out=found[channel], mode="clip")
        return found


def _add_channel(values: np.ndarray) -> np.ndarray:
    return values[..., None] if values.ndim == 2 else values
