"""Record the state that functions and objects keep between two calls, and restore it.

Trying a metric or a collator before training must not influence its first real call. The search finds variables of
closures, globals that a function uses, attributes, lists, dicts and sets, iterators over them, small tensors, and
generators of random numbers, to the depth at which state is usually kept. A generator or an open file cannot be
restored: where one is found, nothing should be tried.
"""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MAX_DEPTH = 4
MAX_ENTRIES = 1_000  # entries of a container that are searched
MAX_OBJECTS = 2_000  # objects visited in all
_PLAIN = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.ModuleType,
    np.ndarray,
    torch.dtype,
    torch.device,
)


_ITERATORS = {type(iter(one)) for one in ([], (), range(0), "", b"")}  # their position can be restored


@contextmanager
def preserve_objects(*things: Any) -> Iterator[None]:
    """Restore the state of these objects, however they are called inside the block.

    >>> calls = []
    >>> with preserve_objects(lambda: calls):
    ...     calls.append(1)
    >>> calls
    []
    """
    recorder = _StateRecorder(things)
    try:
        yield
    finally:
        recorder.restore()


def can_restore(*things: Any) -> bool:
    """Return whether all state of these objects can be restored; that of a running generator cannot.

    >>> can_restore(iter([1, 2])), can_restore(number for number in [1, 2])
    (True, False)
    """
    return not _StateRecorder(things).has_unrestorable


class _StateRecorder:
    """Records the state of objects, and restores it."""

    def __init__(self, things: Iterable[Any]) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.seen: dict[int, Any] = {}  # with the objects, so that no id is reused
        self.has_unrestorable = False  # something cannot be restored, such as a running generator
        for thing in things:
            self.record(thing, MAX_DEPTH)

    def restore(self) -> None:
        for restore in reversed(self.undo):
            restore()

    def record(self, thing: Any, depth: int) -> None:
        if depth == 0 or isinstance(thing, _PLAIN) or id(thing) in self.seen or len(self.seen) > MAX_OBJECTS:
            return
        self.seen[id(thing)] = thing
        if self._record_generator(thing):
            return
        if isinstance(thing, Iterator):
            self._record_iterator(thing)
        elif isinstance(thing, Tensor):
            self._record_tensor(thing)
        elif isinstance(thing, functools.partial):
            self._record_all([thing.func, *thing.args, *thing.keywords.values()], depth)
        elif isinstance(thing, types.MethodType):
            # The state of a method is that of its object.
            self._record_all([thing.__self__, thing.__func__], depth + 1)
        elif isinstance(thing, types.FunctionType):
            self._record_function(thing, depth)
        elif isinstance(thing, (list, dict, set, deque)):
            self._record_container(thing, depth)
        else:
            self._record_object(thing, depth)

    def _record_all(self, things: list[Any], depth: int) -> None:
        for thing in things:
            self.record(thing, depth - 1)

    def _record_generator(self, thing: Any) -> bool:
        """Record a generator of random numbers; return False if `thing` is none."""
        if isinstance(thing, torch.Generator):
            state = thing.get_state()
            self.undo.append(lambda: thing.set_state(state))
        elif isinstance(thing, np.random.Generator):
            numbers = thing.bit_generator.state
            self.undo.append(lambda: setattr(thing.bit_generator, "state", numbers))
        elif isinstance(thing, np.random.RandomState):
            legacy = thing.get_state()
            self.undo.append(lambda: thing.set_state(legacy))
        elif isinstance(thing, random.Random):
            before = thing.getstate()
            self.undo.append(lambda: thing.setstate(before))
        else:
            return False
        return True

    def _record_iterator(self, iterator: Any) -> None:
        if type(iterator) not in _ITERATORS:
            self.has_unrestorable = True
            return
        place = iterator.__reduce__()
        if len(place) == 3:  # not at its end
            self.undo.append(lambda: iterator.__setstate__(place[2]))

    def _record_tensor(self, tensor: Tensor) -> None:
        if tensor.numel() <= MAX_ENTRIES and not tensor.requires_grad:
            before = tensor.clone()
            self.undo.append(lambda: tensor.copy_(before))

    def _record_function(self, function: types.FunctionType, depth: int) -> None:
        self._record_all([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()], depth)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.undo.append(functools.partial(setattr, cell, "cell_contents", value))
            self.record(value, depth - 1)
        names = function.__globals__
        for name in function.__code__.co_names:
            value = names.get(name)
            if name in names and not isinstance(value, (types.ModuleType, type, types.FunctionType)):
                self.undo.append(functools.partial(names.__setitem__, name, value))
                self.record(value, depth - 1)

    def _record_container(self, container: Any, depth: int) -> None:
        before: Any = dict(container) if isinstance(container, dict) else list(container)

        def restore() -> None:
            if _is_same(container, before):
                return
            container.clear()
            container.extend(before) if isinstance(container, (list, deque)) else container.update(before)

        self.undo.append(restore)
        if len(before) <= MAX_ENTRIES:
            self._record_all(list(before.values()) if isinstance(before, dict) else before, depth)

    def _record_object(self, thing: Any, depth: int) -> None:
        attributes = getattr(thing, "__dict__", None)
        if not isinstance(attributes, dict) or (
            isinstance(thing, nn.Module) and any(True for _ in thing.parameters())
        ):
            return  # a model is not state of this kind
        self._record_container(attributes, depth)


def _is_same(container: Any, before: Any) -> bool:
    """Return whether a container holds the very same objects as before."""
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(name in container and container[name] is value for name, value in before.items())
    return all(one is other for one, other in zip(container, before, strict=True))
