"""A model for texts, with its tokenizer: loaded or trained, and adjusted to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato import ConfigError
from ostinato.logging import get_logger

from . import models
from .rows import TRAIN, Split
from .task_arguments import TokenizerArguments
from .tokenizers import choose_style, train_tokenizer

if TYPE_CHECKING:
    from .recipe import Recipe


def build_text_model(recipe: Recipe, arguments: TokenizerArguments, splits: Mapping[str, Split]) -> Any:
    """Return the model of a recipe, and set the recipe's config and tokenizer on the way."""
    config = recipe.config = models.load_config(arguments)
    if arguments.train_tokenizer:
        recipe.tokenizer = train_recipe_tokenizer(recipe, arguments, config, splits)
    else:
        recipe.tokenizer = models.load_tokenizer(arguments, **recipe.get_tokenizer_arguments())
    if arguments.model_name_or_path is None:
        models.fit_config_to_tokenizer(config, recipe.tokenizer)
    models.set_pad_token(recipe.tokenizer, config, arguments, is_needed=recipe.needs_padding)
    recipe.prepare_config(config)
    model = recipe.load_model(arguments)
    models.resize_embeddings(model, recipe.tokenizer)
    recipe.prepare_model(model)
    return model


def train_recipe_tokenizer(
    recipe: Recipe, arguments: TokenizerArguments, config: Any, splits: Mapping[str, Split]
) -> Any:
    """Return a tokenizer trained on the training rows, of the kind that a config's model uses."""
    if TRAIN not in splits:
        raise ConfigError(
            what="--train_tokenizer without --do_train",
            why="the tokenizer is trained on the training rows",
            fix="use the tokenizer of the trained model: --tokenizer_name DIR",
        )
    rows = splits[TRAIN].rows
    texts = (text for batch in rows.iter(1000) for text in recipe.iterate_texts(batch))
    tokenizer = train_tokenizer(texts, arguments.vocab_size, choose_style(config, recipe.model_class))
    get_logger().info(f"tokenizer: trained on {splits[TRAIN].source}, {len(tokenizer):,} pieces")
    return tokenizer
