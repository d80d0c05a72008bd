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

DEPTH = 4
LARGE = 1_000  # entries of a container that are searched
MANY = 2_000  # objects visited in all
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
def unchanged(*things: Any) -> Iterator[None]:
    """Restore the state of these objects, however they are called inside the block.

    >>> calls = []
    >>> with unchanged(lambda: calls):
    ...     calls.append(1)
    >>> calls
    []
    """
    keeper = _Keeper(things)
    try:
        yield
    finally:
        keeper.restore()


def can_be_put_back(*things: Any) -> bool:
    """Return whether all state of these objects can be restored: none of it can only advance.

    >>> can_be_put_back(iter([1, 2])), can_be_put_back(number for number in [1, 2])
    (True, False)
    """
    return not _Keeper(things).has_run_on


class _Keeper:
    """The recorded steps that restore the state."""

    def __init__(self, things: Iterable[Any]) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.seen: dict[int, Any] = {}  # with the objects, so that no id is reused
        self.has_run_on = False  # something was found that cannot be restored
        for thing in things:
            self.look(thing, DEPTH)

    def restore(self) -> None:
        for put_back in reversed(self.undo):
            put_back()

    def look(self, thing: Any, depth: int) -> None:
        if depth == 0 or isinstance(thing, _PLAIN) or id(thing) in self.seen or len(self.seen) > MANY:
            return
        self.seen[id(thing)] = thing
        if self._is_generator(thing):
            return
        if isinstance(thing, Iterator):
            self._iterator(thing)
        elif isinstance(thing, Tensor):
            self._tensor(thing)
        elif isinstance(thing, functools.partial):
            self._all([thing.func, *thing.args, *thing.keywords.values()], depth)
        elif isinstance(thing, types.MethodType):
            self._all([thing.__self__, thing.__func__], depth + 1)  # the state of a method is that of its object
        elif isinstance(thing, types.FunctionType):
            self._function(thing, depth)
        elif isinstance(thing, (list, dict, set, deque)):
            self._container(thing, depth)
        else:
            self._object(thing, depth)

    def _all(self, things: list[Any], depth: int) -> None:
        for thing in things:
            self.look(thing, depth - 1)

    def _is_generator(self, thing: Any) -> bool:
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

    def _iterator(self, iterator: Any) -> None:
        if type(iterator) not in _ITERATORS:
            self.has_run_on = True
            return
        place = iterator.__reduce__()
        if len(place) == 3:  # not at its end
            self.undo.append(lambda: iterator.__setstate__(place[2]))

    def _tensor(self, tensor: Tensor) -> None:
        if tensor.numel() <= LARGE and not tensor.requires_grad:
            before = tensor.clone()
            self.undo.append(lambda: tensor.copy_(before))

    def _function(self, function: types.FunctionType, depth: int) -> None:
        self._all([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()], depth)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.undo.append(functools.partial(setattr, cell, "cell_contents", value))
            self.look(value, depth - 1)
        names = function.__globals__
        for name in function.__code__.co_names:
            value = names.get(name)
            if name in names and not isinstance(value, (types.ModuleType, type, types.FunctionType)):
                self.undo.append(functools.partial(names.__setitem__, name, value))
                self.look(value, depth - 1)

    def _container(self, container: Any, depth: int) -> None:
        before: Any = dict(container) if isinstance(container, dict) else list(container)

        def put_back() -> None:
            if _is_same(container, before):
                return
            container.clear()
            container.extend(before) if isinstance(container, (list, deque)) else container.update(before)

        self.undo.append(put_back)
        if len(before) <= LARGE:
            self._all(list(before.values()) if isinstance(before, dict) else before, depth)

    def _object(self, thing: Any, depth: int) -> None:
        attributes = getattr(thing, "__dict__", None)
        if not isinstance(attributes, dict) or (
            isinstance(thing, nn.Module) and any(True for _ in thing.parameters())
        ):
            return  # a model is not state of this kind
        self._container(attributes, depth)


def _is_same(container: Any, before: Any) -> bool:
    """Return whether a container holds the very same objects as before."""
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(name in container and container[name] is value for name, value in before.items())
    return all(one is other for one, other in zip(container, before, strict=True))
