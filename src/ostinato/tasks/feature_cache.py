"""Rows to features, cached: what one command has encoded, the next finds."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

import ostinato

from .recipe import Recipe
from .rows import Split, import_datasets

# What a recipe holds that encoding does not depend on, or that is told otherwise.
_NOT_PART_OF_THE_KEY = {"arguments", "tokenizer", "training"}
# Flags that change how rows are encoded, or how many, and not into what: that of the rows is in their own fingerprint.
_NO_MATTER = {
    *("preprocessing_num_workers", "overwrite_cache"),
    *("max_train_samples", "max_eval_samples", "max_predict_samples"),
}


def encode_split(recipe: Recipe, split: Split) -> Any:
    """The features of a split; its own columns are dropped."""
    purpose = split.name.partition("_")[0]

    def mapped(rows: Any, function: Callable[..., Any], **options: Any) -> Any:
        settings = recipe.arguments
        with _same_environment():
            return rows.map(
                function,
                batched=True,
                remove_columns=rows.column_names,
                num_proc=settings.preprocessing_num_workers,
                load_from_cache_file=not settings.overwrite_cache,
                new_fingerprint=_fingerprint(recipe, rows, function, purpose),
                desc=f"Encoding {split.name} rows",
                **options,
            )

    features = recipe.arrange(mapped(split.rows, _Encode(recipe, purpose)), purpose, mapped)
    _forget_last_call(recipe.tokenizer)
    return features


@contextmanager
def _same_environment() -> Iterator[None]:
    """With worker processes `datasets` puts a copy in the place of os.environ: whoever has kept the first, as rich
    does, would not see what changes later."""
    environment, before = os.environ, dict(os.environ)
    try:
        yield
    finally:
        if os.environ is not environment:
            os.environ = environment  # noqa: B003
            for name in environment.keys() - before.keys():
                del environment[name]
            environment.update(before)


def _forget_last_call(tokenizer: Any) -> None:
    """A fast tokenizer remembers the length it last cut texts to, and would be saved with it, unless all features were
    found in the cache: the files of a run must not depend on that."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()


class _Encode:
    """A recipe's `encode` for one purpose; no closure, so that worker processes can be given it."""

    def __init__(self, recipe: Recipe, purpose: str) -> None:
        self.recipe, self.purpose = recipe, purpose

    def __call__(self, rows: Mapping[str, list[Any]]) -> dict[str, Any]:
        return dict(self.recipe.encode(rows, self.purpose))


def _fingerprint(recipe: Recipe, rows: Any, function: Callable[..., Any], purpose: str) -> str:
    """A name for the result, made of everything it depends on. `datasets` would hash the pickled function, and with
    it a tokenizer that remembers how it was last called, so that nothing would ever be found again."""
    facts = {name: value for name, value in vars(recipe).items() if name not in _NOT_PART_OF_THE_KEY}
    flags = {name: value for name, value in vars(recipe.arguments).items() if name not in _NO_MATTER}
    parts = [
        rows._fingerprint,
        ostinato.__version__,
        *(_source(kind) for kind in dict.fromkeys((*type(recipe).__mro__[:-1], type(function)))),
        getattr(function, "__qualname__", type(function).__qualname__),
        purpose,
        json.dumps([facts, flags], default=_plain, sort_keys=True),
        tokenizer_facts(recipe.tokenizer),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _source(kind: type) -> str:
    """The file that a class is from; of one that was written at a prompt or in a notebook, what it consists of."""
    try:
        return inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):
        return import_datasets().fingerprint.Hasher.hash(kind)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    to_dict = getattr(value, "to_dict", None)
    return to_dict() if callable(to_dict) else repr(value)


def tokenizer_facts(tokenizer: Any) -> str:
    """Everything a tokenizer's results depend on, and not how it was last called."""
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return repr(tokenizer) + json.dumps(tokenizer.get_vocab(), sort_keys=True)
    content = json.loads(backend.to_str())
    content.pop("truncation", None)
    content.pop("padding", None)
    return repr(tokenizer) + json.dumps(content)
