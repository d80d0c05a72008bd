"""What the pretended device is, and how it behaves: one object, read by every other module here."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass
class Settings:
    """The one device of this process. Everything but `type` and `key` may be changed between two tests."""

    type: str = ""  # "cuda", or the name that PrivateUse1 was given; empty until `install`
    key: str = ""  # the dispatch key of its tensors: "CUDA" or "PrivateUse1"
    hostile: bool = False  # whatever may happen late happens late, and what is not ordered is an error
    late_asserts: bool = (
        False  # an index out of range is reported at the next wait, as kernels do, and ends the device
    )
    has_float64: bool = True  # MPS and some other devices have none
    has_pinned_memory: bool = True  # packages that add a device need not have any
    memory_limit: int | None = None  # bytes; what does not fit raises torch.OutOfMemoryError
    kernel_seconds: float = 0.0  # how long a kernel takes; the host may do something else meanwhile
    is_forked: bool = False  # this process was forked from one that uses the device: it must not touch it
    death: str = field(default="", repr=False)  # the message of the assert that ended the device
    is_death_known: bool = False  # the host has been told

    @property
    def device(self) -> torch.device:
        return torch.device(self.type, 0)

    def restore(self) -> None:
        """Undo all that a test may have set: a dead device lives again."""
        self.hostile = self.late_asserts = False
        self.has_float64 = self.has_pinned_memory = True
        self.memory_limit, self.kernel_seconds, self.death = None, 0.0, ""


DEVICE = Settings()


def is_here(value: object) -> bool:
    """Say whether this is a tensor on the pretended device."""
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE.type
