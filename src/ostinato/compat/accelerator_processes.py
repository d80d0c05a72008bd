"""The names of accelerate that run code on some processes, divide work among them, or need no state of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from itertools import islice
from typing import Any

import torch

from ..arguments.process_state import ProcessState

Function = Callable[..., Any]


class ProcessFunctions(ProcessState):
    """Decorators and contexts that depend on the number of this process alone."""

    def on_main_process(self, function: Function) -> Function:
        """Wrap `function` so that it runs on the main process alone."""
        return _run_if(function, lambda: self.is_main_process)

    def on_local_main_process(self, function: Function) -> Function:
        """Wrap `function` so that it runs on the main process of each node."""
        return _run_if(function, lambda: self.is_local_main_process)

    def on_last_process(self, function: Function) -> Function:
        """Wrap `function` so that it runs on the last process alone."""
        return _run_if(function, lambda: self.is_last_process)

    def on_process(self, function: Function | None = None, process_index: int | None = None) -> Function:
        """Wrap `function` so that it runs on one process; without one, return the decorator."""
        if function is None:
            return lambda given: self.on_process(given, process_index)
        return _run_if(function, lambda: self.process_index == process_index)

    def on_local_process(self, function: Function | None = None, local_process_index: int | None = None) -> Function:
        """Wrap `function` so that it runs on one process of each node; without one, return the decorator."""
        if function is None:
            return lambda given: self.on_local_process(given, local_process_index)
        return _run_if(function, lambda: self.local_process_index == local_process_index)

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Give each process its part of a list, tuple, tensor, or dict of these; the first ones may have one more.

        `apply_padding` repeats the last element, so that all parts have the same length.
        """
        yield split_inputs(inputs, self.process_index, self.num_processes, apply_padding=apply_padding)

    def join_uneven_inputs(self, joinables: Any, even_batches: bool | None = None) -> AbstractContextManager[None]:
        """Return a context without effect: all processes have equally many batches."""
        return nullcontext()

    def maybe_context_parallel(self, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
        """Return a context without effect: sequences are not split over processes."""
        return nullcontext()

    def profile(self, profile_handler: Any = None) -> AbstractContextManager[Any]:
        """Return torch's profiler, configured by the handler if one is given."""
        return torch.profiler.profile() if profile_handler is None else profile_handler.build()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> SkippedBatches:
        """Return the batches of a loader after the first `num_batches`."""
        return SkippedBatches(dataloader, num_batches)


def _run_if(function: Function, is_due: Callable[[], bool]) -> Function:
    @wraps(function)
    def run_here(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if is_due() else None

    return run_here


def split_inputs(inputs: Any, index: int, count: int, *, apply_padding: bool = False) -> Any:
    """Return part `index` of `count` parts.

    >>> [split_inputs([1, 2, 3], index, 2) for index in range(2)]
    [[1, 2], [3]]
    >>> split_inputs({"a": [1, 2, 3]}, 1, 2, apply_padding=True)
    {'a': [3, 3]}
    """
    if count == 1:
        return inputs
    if isinstance(inputs, dict):
        return {name: split_inputs(part, index, count, apply_padding=apply_padding) for name, part in inputs.items()}
    size, left = divmod(len(inputs), count)
    start = index * size + min(index, left)
    part = inputs[start : start + size + (index < left)]
    missing = size + (left > 0) - len(part)
    return _repeat_last(part, inputs, missing) if apply_padding and missing and len(inputs) else part


def _repeat_last(part: Any, inputs: Any, count: int) -> Any:
    last = inputs[-1:]
    if isinstance(part, torch.Tensor):
        return torch.cat([part, *([last] * count)])
    return part + last * count


class SkippedBatches:
    """A loader without its first batches; everything else is that of the loader.

    >>> list(SkippedBatches([1, 2, 3], 2)), len(SkippedBatches([1, 2, 3], 2))
    ([3], 1)
    """

    def __init__(self, loader: Sequence[Any] | Any, skipped: int) -> None:
        self._loader, self._skipped = loader, skipped

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._loader), self._skipped, None)

    def __len__(self) -> int:
        return max(0, len(self._loader) - self._skipped)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)
