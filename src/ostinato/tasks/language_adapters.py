"""Adapters for languages: small layers inside of a speech model that are trained, saved and loaded alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ostinato import ConfigError
from ostinato.logging import get_logger

from .models import import_transformers

_FILE_NAME = "adapter.{}.safetensors"  # where transformers looks for the adapter of a language


def init_adapter(model: Any) -> None:
    """Make new adapter layers, and train them and the output layer alone."""
    _require_adapters(model)
    model.init_adapter_layers()
    model.freeze_base_model()
    weights = model._get_adapters()
    for weight in weights.values():
        weight.requires_grad = True
    trained, total = sum(weight.numel() for weight in weights.values()), sum(one.numel() for one in model.parameters())
    get_logger().info(f"the adapter and the output layer are trained: {trained:,} of {total:,} parameters")


def choose_language(tokenizer: Any, language: str) -> None:
    """Make a tokenizer of several languages use the characters of one."""
    languages = sorted(tokenizer.vocab) if tokenizer.target_lang is not None else []
    if language not in languages:
        raise ConfigError(
            what=f"--target_language {language}: the tokenizer does not know it",
            why=f"its languages are {', '.join(languages)}" if languages else "it has one vocabulary, for no language",
            fix="name one of these" if languages else "leave out --target_language, or train an adapter with it",
        )
    tokenizer.set_target_lang(language)


def load_adapter(model: Any, source: str | None, language: str) -> None:
    """Load the adapter of a language that lies beside the model."""
    _require_adapters(model)
    directory = Path(str(source))
    if directory.is_dir() and not (directory / _FILE_NAME.format(language)).is_file():
        found = sorted(path.name.split(".")[1] for path in directory.glob(_FILE_NAME.format("*")))
        raise ConfigError(
            what=f"--target_language {language}: {source} has no adapter for it",
            why=f"it has adapters for {', '.join(found)}" if found else "it has no adapters",
            fix="name one of these" if found else "train one: --target_language with --do_train",
        )
    model.target_lang = None
    model.load_adapter(language, force_load=True)


def save_adapter(model: Any, directory: Path, language: str, source: str | None) -> None:
    """Write the adapter of a language, which `load_adapter` of transformers reads; keep those of other languages."""
    if source is not None and Path(source).is_dir() and Path(source).resolve() != directory.resolve():
        for path in Path(source).glob(_FILE_NAME.format("*")):
            shutil.copy(path, directory / path.name)
    path = directory / _FILE_NAME.format(language)
    weights = {name: weight.detach().contiguous().cpu() for name, weight in model._get_adapters().items()}
    save_file(weights, path, metadata={"format": "pt"})
    get_logger().info(f"adapter: {path}")


def _require_adapters(model: Any) -> None:
    if not hasattr(model, "init_adapter_layers") or getattr(model.config, "adapter_attn_dim", None) is None:
        supported = import_transformers().Wav2Vec2ForCTC.__name__
        raise ConfigError(
            what=f"--target_language with {type(model).__name__}",
            why="the model has no layers for adapters",
            fix=f"use {supported} (--model_type wav2vec2), or leave out --target_language",
        )
