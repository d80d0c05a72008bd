"""The tensors of a model that saves itself, without its writing them.

`save_pretrained` decides about names, tied weights, conversions and shards, and hands the result to `save_file` of
safetensors, file by file. While `handing_over` is entered, whoever takes tensors gets them instead; configurations and
indexes are written as ever. Nothing is assumed about how `save_pretrained` works but that it calls `save_file`: where
it does not, its weights are written by itself, as they would be without all this.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from .tensors import TensorWriter

_KNOWN = ("transformers", "peft")  # anybody else may look at the file right after it was written


@contextmanager
def handing_over(save_pretrained: Callable[..., Any], write: TensorWriter) -> Iterator[None]:
    """Inside, the tensors that `save_pretrained` wants written in this thread go to `write`.

    >>> with handing_over(model.save_pretrained, snapshot):
    ...     model.save_pretrained("out")
    """
    function = inspect.unwrap(getattr(save_pretrained, "__func__", save_pretrained))
    names = getattr(function, "__globals__", {})
    if names.get("__name__", "").partition(".")[0] not in _KNOWN:
        yield
        return
    here = threading.get_ident()

    def take(tensors: Any, filename: Any, metadata: Any = None, **options: Any) -> None:
        if threading.get_ident() == here:
            write(Path(filename), tensors, metadata)
        else:
            save_file(tensors, filename, metadata=metadata, **options)

    replaced = [name for name, value in names.items() if value is save_file]
    for name in replaced:
        names[name] = take
    try:
        yield
    finally:
        for name in replaced:
            names[name] = save_file
