"""The tokenizer's special tokens in the configs of the trained model."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from ..core.notices import note_once

_NAMES = ("eos_token_id", "bos_token_id", "pad_token_id")


def align_special_tokens(model: nn.Module, processing_class: Any) -> None:
    """Write the tokenizer's eos, bos and pad into the model's config and generation config, as transformers does.

    A classifier finds the end of a row by `config.pad_token_id`; generated texts end at the eos that was trained.
    A token that the tokenizer does not have leaves the configs unchanged.
    """
    tokenizer = _find_tokenizer(processing_class)
    config = None if tokenizer is None else _find_text_config(model)
    if config is None:
        return
    generation = getattr(model, "generation_config", None)
    configs = [config] if generation is None else [config, generation]
    changed: dict[str, int] = {}
    for name in _NAMES:
        token = getattr(tokenizer, name, None)
        if token is None or all(_has_token(getattr(one, name, None), token) for one in configs):
            continue
        changed[name] = token
        for one in configs:
            present = getattr(one, name, None)
            takes_several = name == "eos_token_id" and (one is generation or isinstance(present, (list, tuple)))
            setattr(one, name, _put_first(token, present) if takes_several else token)
    if changed:
        values = ", ".join(f"{name}={token}" for name, token in changed.items())
        where = "config" if generation is None else "config and generation config"
        note_once(f"special tokens: the model's {where} took {values} from the tokenizer")


def _find_tokenizer(processing_class: Any) -> Any:
    """Return the tokenizer that the processing class is or, as a processor of several parts, has; else None."""
    if _is_of_transformers(processing_class, "processing_utils", "ProcessorMixin"):
        processing_class = getattr(processing_class, "tokenizer", None)
    is_tokenizer = _is_of_transformers(processing_class, "tokenization_utils_base", "PreTrainedTokenizerBase")
    return processing_class if is_tokenizer else None


def _is_of_transformers(thing: Any, module: str, kind: str) -> bool:
    # A class whose module is not loaded has no instances, so nothing is imported here.
    cls = getattr(sys.modules.get(f"transformers.{module}"), kind, None)
    return cls is not None and isinstance(thing, cls)


def _find_text_config(model: nn.Module) -> Any:
    """Return the config of the part that reads and writes text; None if the model has none or several."""
    find = getattr(getattr(model, "config", None), "get_text_config", None)
    if not callable(find):
        return None
    try:
        return find()
    except ValueError:  # such as a text encoder beside an audio decoder
        note_once("special tokens: the model's configs stay as they are, since several of them are for text")
        return None


def _has_token(present: Any, token: int) -> bool:
    return token in present if isinstance(present, (list, tuple)) else present == token


def _put_first(token: int, present: Any) -> list[int]:
    others = present if isinstance(present, (list, tuple)) else [] if present is None else [present]
    return [token, *(other for other in others if other != token)]
