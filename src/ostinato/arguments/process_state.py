"""`args.distributed_state`: facts about this process, under the names of accelerate's state."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .training_args import TrainingArguments

_WORDS = {"cuda": "GPU", "mps": "CPU"}  # where they are not the name of the device: on MPS processes meet on the CPU


def initialize_process_state(args: TrainingArguments) -> None:
    """Give accelerate its state of this process, which loggers of libraries need before there is a trainer.

    Does nothing if accelerate is not imported, or already has its state.
    """
    state = sys.modules.get("accelerate.state")
    if state is None or state.PartialState._shared_state:
        return
    if args.world_size > 1:
        args._wait_for_everyone()  # opens the process group, which accelerate then uses
    state.PartialState(cpu=args.use_cpu)


class ProcessState:
    """A view of the arguments, without state of its own.

    >>> TrainingArguments("out", use_cpu=True).distributed_state.num_processes  # doctest: +SKIP
    1
    """

    initialized = True

    def __init__(self, args: TrainingArguments) -> None:
        self._args = args

    @property
    def device(self) -> torch.device:
        return self._args.device

    @property
    def num_processes(self) -> int:
        return self._args.world_size

    @property
    def process_index(self) -> int:
        return self._args.process_index

    @property
    def local_process_index(self) -> int:
        return self._args.local_process_index

    @property
    def is_main_process(self) -> bool:
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        return self.process_index == self.num_processes - 1

    @property
    def use_distributed(self) -> bool:
        return self.num_processes > 1

    @property
    def distributed_type(self) -> Any:
        """Return accelerate's `DistributedType`, or its value as text if accelerate is not imported."""
        if self.num_processes == 1:
            word = "NO"
        else:
            word = f"MULTI_{_WORDS.get(self.device.type, self.device.type.upper())}"
        accelerate = sys.modules.get("accelerate.utils")
        known = () if accelerate is None else [kind.value for kind in accelerate.DistributedType]
        return accelerate.DistributedType(word) if accelerate is not None and word in known else word

    def wait_for_everyone(self) -> None:
        self._args._wait_for_everyone()

    def main_process_first(self) -> AbstractContextManager[Any]:
        return self._args.main_process_first(local=False)

    def local_main_process_first(self) -> AbstractContextManager[Any]:
        return self._args.main_process_first(local=True)

    def print(self, *args: Any, **kwargs: Any) -> None:
        if self.is_local_main_process:
            print(*args, **kwargs)  # noqa: T201
