"""The error that ends a process of torch's agent, written down for the agent: it tells which process failed first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure, get_error_handler


@contextmanager
def record_failure() -> Iterator[None]:
    """Write down the error of the block, if an agent has named a file for it."""
    try:
        yield
    except Exception as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:
            get_error_handler().record_exception(error)
        raise


def find_first_failure(failures: Mapping[int, ProcessFailure]) -> int:
    """Return the rank of the process that failed first, of those that the agent found dead at the same time.

    A process that was killed, or ended outside of training, wrote nothing down; the others lost it, and wrote that.
    """
    return min(failures, key=lambda rank: _order(failures[rank]))


def _order(failure: ProcessFailure) -> tuple[bool, float]:
    try:
        return True, os.stat(failure.error_file).st_mtime  # the agent counts whole seconds
    except OSError:
        return False, failure.timestamp
