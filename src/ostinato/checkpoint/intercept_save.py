"""Intercept the tensors of a model that saves itself, before it writes them.

`save_pretrained` decides about names, tied weights, conversions and shards, and passes the result to `save_file` of
safetensors, file by file. Inside `intercept_tensors`, a given function receives the tensors instead; configurations
and indexes are written as usual. The only assumption about `save_pretrained` is that it calls `save_file`: where it
does not, it writes its weights itself, as it would without this module.
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

_KNOWN = ("transformers", "peft")  # other libraries may read the file right after it was written


@contextmanager
def intercept_tensors(save_pretrained: Callable[..., Any], write: TensorWriter) -> Iterator[None]:
    """Pass the tensors that `save_pretrained` writes in this thread to `write`, inside the block.

    >>> with intercept_tensors(model.save_pretrained, snapshot):  # doctest: +SKIP
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
