"""Tensor files of several processes, each of which writes its own: to the system first, and to the disk later.

A copy in the memory of the process, as `snapshot` keeps one, would take what dividing a model has freed. What is
written to a file and not flushed is kept by the system, which writes it to the disk when it needs the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .atomic import build_other_process_error, seal_file
from .disk import Sealed
from .tensors import write_tensors


@dataclass
class WrittenFiles:
    """The tensor files of this process. Call it with a path and tensors; later, `write` flushes the files.

    `gather` returns a value of every process. It is called in the thread that writes, while another one trains.
    """

    directory: Path
    gather: Callable[[Any], list[Any]]
    sealed: dict[Path, Sealed] = field(default_factory=dict)  # of all processes, once they have flushed theirs
    size: int = 0
    written: int = 0  # bytes of it that are on the disk
    _own: list[Path] = field(default_factory=list)

    def __call__(
        self, path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write a file. The tensors may change afterwards."""
        write_tensors(path, tensors, metadata)
        self._own.append(Path(path))
        self.size += self._own[-1].stat().st_size

    def receive(self) -> None:
        """Return: nothing is copied later."""

    def write(self) -> None:
        """Flush the files to the disk, and wait until all processes have flushed theirs.

        Raises:
            OtherProcessError: Another process could not.
        """
        found: dict[str, Sealed] = {}
        failure: Exception | None = None
        try:
            for path in self._own:
                found[path.relative_to(self.directory).as_posix()] = sealed = seal_file(path)
                self.written += sealed.size
        except Exception as error:  # the other processes are waiting
            failure = error
        every = self.gather(None if failure is not None else found)
        if failure is not None:
            raise failure
        if None in every:
            raise build_other_process_error(self.directory)
        self.sealed = {self.directory / name: sealed for each in every for name, sealed in each.items()}
