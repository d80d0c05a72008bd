"""Recognise that memory ran out, and call a function again with a smaller batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

from . import accelerator

SMALLER = 0.9  # the share of the rows that is tried next, as in transformers
# Words of torch for a lack of memory that it does not report as an `OutOfMemoryError`.
_WORDS = ("CUDNN_STATUS_NOT_SUPPORTED", "can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch found no memory for a tensor.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def find_executable_batch_size(
    function: Callable[..., Any] | None = None, starting_batch_size: int = 128, auto_find_batch_size: bool = False
) -> Any:
    """Wrap a function whose first argument is a batch size, so that it is called again with less if memory runs out.

    Args:
        function: The function; None to use this as a decorator with arguments.
        starting_batch_size: The first size that is tried.
        auto_find_batch_size: Whether smaller sizes are tried. If not, the function is called with the first alone.

    Returns:
        The function without its first argument, or the decorator.

    Raises:
        RuntimeError: Not even a batch of one row fits; raised by the wrapped function.

    >>> @find_executable_batch_size(starting_batch_size=4, auto_find_batch_size=True)
    ... def train(batch_size):
    ...     if batch_size > 2:
    ...         raise RuntimeError("CUDA out of memory.")
    ...     return batch_size
    >>> train()
    2
    """
    if function is None:
        return partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            auto_find_batch_size=auto_find_batch_size,
        )
    if not auto_find_batch_size:
        return partial(function, batch_size=starting_batch_size)

    @wraps(function)
    def call_until_it_fits(*args: Any, **kwargs: Any) -> Any:
        size = starting_batch_size
        while size > 0:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # Here the frames of the call are gone, and the memory of their tensors is free.
            gc.collect()
            accelerator.empty_cache(accelerator.get_current())
            size = int(size * SMALLER)
        raise RuntimeError("No executable batch size found, reached zero: not even a batch of one row fits in memory.")

    return call_until_it_fits
