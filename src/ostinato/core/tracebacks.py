"""Short tracebacks: the user's code and the message, with at most six frames of this library in between.

The path from `train()` to a model's forward is always the same and does not help to find a mistake. Its first three
frames and its last three are kept. `OSTINATO_FULL_TRACEBACK=1` keeps them all.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from types import TracebackType

KEPT_AT_EACH_END = 3

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # as in the file names of frames
_PASSED_THROUGH = (os.sep + "contextlib.py", os.sep + os.path.join("torch", "utils", "data", "dataloader.py"))


class ShortTraceback:
    """Shorten the traceback of any exception that is raised inside the block. It may be nested.

    >>> with ShortTraceback():
    ...     pass
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            shorten_traceback(error)


def shorten_traceback(error: BaseException) -> None:
    """Remove the middle of the library's frames from the traceback of an error and of those that caused it.

    Frames are unlinked in place: the head of the chain stays, so this works for an exception in flight.
    """
    if os.environ.get("OSTINATO_FULL_TRACEBACK", "0") not in ("", "0"):
        return
    for one in _iterate_chain(error):
        entries = list(_iterate_entries(one.__traceback__))
        keep = _choose_kept([_get_file(entry) for entry in entries])
        kept = [entry for entry, is_kept in zip(entries, keep, strict=True) if is_kept]
        for entry, following in itertools.pairwise(kept):
            entry.tb_next = following


def list_frames(error: BaseException) -> list[TracebackType]:
    """Return the entries of an exception's traceback, outermost first.

    >>> list_frames(ValueError())
    []
    """
    return list(_iterate_entries(error.__traceback__))


def is_ours(entry: TracebackType) -> bool:
    """Return whether a frame of a traceback runs code of this library."""
    return _get_file(entry).startswith(_PACKAGE)


def _choose_kept(files: list[str]) -> list[bool]:
    """Return which entries are kept: all that are not ours, and the first and the last of ours."""
    ours = [index for index, file in enumerate(files) if file.startswith(_PACKAGE)]
    if len(ours) <= 2 * KEPT_AT_EACH_END:
        return [True] * len(files)
    first, last = ours[KEPT_AT_EACH_END - 1], ours[-KEPT_AT_EACH_END]
    return [
        not first < index < last or not (file.startswith(_PACKAGE) or file.endswith(_PASSED_THROUGH))
        for index, file in enumerate(files)
    ]


def _iterate_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and every one that Python prints above it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


def _iterate_entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _get_file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename
