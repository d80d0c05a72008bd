"""Dual encoders of images and texts: a CLIP, or a vision model and a text model with a projection each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ostinato import ConfigError
from ostinato.logging import get_logger

from .media.image_processors import create_image_processor, find_image_size, load_image_processor, set_size
from .media.image_recipe import ImageModelArguments
from .models import build_hub_arguments, import_transformers, load_config, load_pretrained
from .task_arguments import TokenizerArguments, flag


@dataclass
class DualEncoderArguments(TokenizerArguments, ImageModelArguments):
    """A dual encoder of two models, in place of one that is named whole."""

    vision_model_name_or_path: str | None = flag(None, "The vision model of a new dual encoder, by path or name.")
    text_model_name_or_path: str | None = flag(None, "The text model of a new dual encoder, by path or name.")

    @property
    def is_pair(self) -> bool:
        return self.vision_model_name_or_path is not None or self.text_model_name_or_path is not None

    def require_pair(self) -> tuple[str, str]:
        """Return the names of the vision model and the text model.

        Raises:
            ConfigError: One of them is not named.
        """
        if self.vision_model_name_or_path is None or self.text_model_name_or_path is None:
            raise ConfigError(
                what="a dual encoder of one model",
                why="--vision_model_name_or_path and --text_model_name_or_path belong together",
                fix="name both; or a whole model with --model_name_or_path",
            )
        return self.vision_model_name_or_path, self.text_model_name_or_path

    @property
    def text_source(self) -> str | None:
        """Where the tokenizer is from, if not from the whole model."""
        return self.tokenizer_name or self.text_model_name_or_path


def load_pair_config(arguments: DualEncoderArguments) -> Any:
    """Return the config of a new dual encoder of the two named models."""
    names = arguments.require_pair()
    vision, text = (load_config(replace(arguments, model_name_or_path=name)) for name in names)
    vision = getattr(vision, "vision_config", vision)  # of a CLIP, its vision part
    return import_transformers().VisionTextDualEncoderConfig.from_vision_text_configs(vision, text)


def load_pair(arguments: DualEncoderArguments, config: Any) -> Any:
    """Return a dual encoder of the two named models, with new projections."""
    transformers, options = import_transformers(), build_hub_arguments(arguments)
    configs = (config.vision_config, config.text_config)
    vision, text = (
        load_pretrained(transformers.AutoModel, name, "model", config=part, **options)
        for name, part in zip(arguments.require_pair(), configs, strict=True)
    )
    get_logger().info("the projections of the two models into one space are new")
    vision = getattr(vision, "vision_model", vision)
    return transformers.VisionTextDualEncoderModel(config=config, vision_model=vision, text_model=text)


def load_pair_image_processor(arguments: DualEncoderArguments, config: Any, image_size: int | None) -> Any:
    """Return the image processor of the vision model, another one, or a new one that fits the config."""
    source = arguments.vision_model_name_or_path or arguments.model_name_or_path
    if source is None and arguments.image_processor_name is None:
        image_processor = create_image_processor(config)
        set_size(image_processor, image_size or find_image_size(config))
        return image_processor
    images = replace(arguments, model_name_or_path=source)
    return load_image_processor(images, arguments.image_processor_name, config, image_size)


def build_pair_processor(config: Any, image_processor: Any, tokenizer: Any) -> Any:
    """Return the processor that is saved with the model."""
    transformers = import_transformers()
    is_clip = config.model_type == "clip"
    kind = transformers.CLIPProcessor if is_clip else transformers.VisionTextDualEncoderProcessor
    return kind(image_processor, tokenizer)


def fit_text_config(config: Any, tokenizer: Any) -> None:
    """Write the size and the special ids of a trained tokenizer into the config of a new text model."""
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.bos_token_id = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    config.eos_token_id = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
