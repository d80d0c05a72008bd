"""Conversion of rows to features, cached: a command reuses what an earlier one has encoded."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import ostinato

from .rows import Split, import_datasets

if TYPE_CHECKING:
    from .recipe import Recipe

# Attributes of a recipe that encoding does not depend on, or that enter the key in another form.
_IGNORED_ATTRIBUTES = {"arguments", "tokenizer", "training"}
# Flags that change how, or how many, rows are encoded, but not the result: the rows have a fingerprint of their own.
_IGNORED_FLAGS = {
    *("preprocessing_num_workers", "overwrite_cache"),
    *("max_train_samples", "max_eval_samples", "max_predict_samples"),
}


def encode_split(recipe: Recipe, split: Split) -> Any:
    """Return the features of a split; its own columns are dropped."""
    purpose = split.name.partition("_")[0]

    def map_rows(rows: Any, function: Callable[..., Any], **options: Any) -> Any:
        settings = recipe.arguments
        with _keep_environment():
            return rows.map(
                function,
                batched=True,
                remove_columns=rows.column_names,
                num_proc=settings.preprocessing_num_workers,
                load_from_cache_file=not settings.overwrite_cache,
                new_fingerprint=_compute_fingerprint(recipe, rows, function, purpose),
                desc=f"Encoding {split.name} rows",
                **options,
            )

    features = recipe.transform_features(map_rows(split.rows, _Encode(recipe, purpose)), purpose, map_rows)
    _reset_tokenizer(recipe.tokenizer)
    return features


@contextmanager
def _keep_environment() -> Iterator[None]:
    """Restore `os.environ`, which `datasets` replaces by a copy when it uses worker processes.

    A reference to the original, such as the one that rich keeps, would not see later changes.
    """
    environment, before = os.environ, dict(os.environ)
    try:
        yield
    finally:
        if os.environ is not environment:
            os.environ = environment  # noqa: B003
            for name in environment.keys() - before.keys():
                del environment[name]
            environment.update(before)


def _reset_tokenizer(tokenizer: Any) -> None:
    """Reset the truncation and padding that a fast tokenizer remembers from its last call.

    They would be saved with it, unless all features were found in the cache. The files of a run must not depend on
    that.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()


class _Encode:
    """A recipe's `encode` for one purpose; not a closure, so that it can be sent to worker processes."""

    def __init__(self, recipe: Recipe, purpose: str) -> None:
        self.recipe, self.purpose = recipe, purpose

    def __call__(self, rows: Mapping[str, list[Any]]) -> dict[str, Any]:
        return dict(self.recipe.encode(rows, self.purpose))


def _compute_fingerprint(recipe: Recipe, rows: Any, function: Callable[..., Any], purpose: str) -> str:
    """Return a name for the result, made of everything it depends on.

    `datasets` would hash the pickled function, and with it a tokenizer that remembers its last call, so that nothing
    would ever be found in the cache.
    """
    facts = {name: value for name, value in vars(recipe).items() if name not in _IGNORED_ATTRIBUTES}
    flags = {name: value for name, value in vars(recipe.arguments).items() if name not in _IGNORED_FLAGS}
    parts = [
        rows._fingerprint,
        ostinato.__version__,
        *(_read_source(kind) for kind in dict.fromkeys((*type(recipe).__mro__[:-1], type(function)))),
        getattr(function, "__qualname__", type(function).__qualname__),
        purpose,
        json.dumps([facts, flags], default=_to_json_type, sort_keys=True),
        describe_tokenizer(recipe.tokenizer),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _read_source(kind: type) -> str:
    """Return the source file of a class; for one defined at a prompt or in a notebook, a hash of its content."""
    try:
        return inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):
        return import_datasets().fingerprint.Hasher.hash(kind)


def _to_json_type(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    to_dict = getattr(value, "to_dict", None)
    return to_dict() if callable(to_dict) else repr(value)


def describe_tokenizer(tokenizer: Any) -> str:
    """Return everything that the results of a tokenizer depend on, which does not include its last call."""
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return repr(tokenizer) + json.dumps(tokenizer.get_vocab(), sort_keys=True)
    content = json.loads(backend.to_str())
    content.pop("truncation", None)
    content.pop("padding", None)
    return repr(tokenizer) + json.dumps(content)
