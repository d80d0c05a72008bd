"""Random numbers of the device: a seed and the number of uses, as counter-based generators have them.

The numbers are drawn by the host's generator, which is seeded from a hash of both for one operation and then put back.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from tests.support.pretend_device.device_settings import DEVICE

NativeGenerator: Any = torch.Generator
STATE_BYTES = 16  # of the seed and the offset
FIRST_LABEL = 0x7072_6574_656E_6400
MASK = (1 << 63) - 1  # seeds are not negative


class DeviceGenerator(NativeGenerator):
    """A torch.Generator that says it is the device's. C++ loses the subclass and keeps the label."""

    known: dict[int, DeviceGenerator] = {}

    def __new__(cls, device: Any = None) -> DeviceGenerator:
        return super().__new__(cls, "cpu")

    def __init__(self, device: Any = None) -> None:
        self._seed, self.offset = 0, 0
        self.label = FIRST_LABEL + len(self.known)
        super().manual_seed(self.label)
        self.known[self.label] = self

    @property
    def device(self) -> torch.device:
        return DEVICE.device

    def manual_seed(self, seed: int) -> DeviceGenerator:
        self._seed, self.offset = int(seed) & MASK, 0
        return self

    def seed(self) -> int:
        self.manual_seed(torch.default_generator.seed())
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self._seed, self.offset], dtype=torch.int64).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        if state.device.type != "cpu" or state.dtype != torch.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.numel() != STATE_BYTES:
            raise RuntimeError("RNG state is wrong size")
        self._seed, self.offset = state.clone().view(torch.int64).tolist()

    @contextlib.contextmanager
    def draw(self) -> Iterator[None]:
        """Let the host's generator give this generator's numbers for one operation."""
        saved = torch.default_generator.get_state()
        state = self.get_state().numpy().tobytes()
        self.offset += 1
        try:
            torch.default_generator.manual_seed(int.from_bytes(hashlib.sha256(state).digest()[:8], "little") & MASK)
            yield
        finally:
            torch.default_generator.set_state(saved)


DEFAULT_GENERATOR = DeviceGenerator()


def find_generator(given: torch.Generator | None) -> DeviceGenerator:
    """Return the device's generator that an operation was given, or the default one."""
    if given is None:
        return DEFAULT_GENERATOR
    found = DeviceGenerator.known.get(given.initial_seed())
    if found is None:
        raise RuntimeError(f"Expected a '{DEVICE.type}' device type for generator but found 'cpu'")
    return found


class _AnyGenerator(type):
    """`torch.Generator`, which is of the host or of the device according to its argument."""

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return DeviceGenerator() if torch.device(device).type == DEVICE.type else NativeGenerator(device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, NativeGenerator)


class Generator(metaclass=_AnyGenerator):
    """Stands in the place of torch.Generator."""


# ---------------------------------------------------------------------------------------- functions of a device module


def manual_seed(seed: int) -> None:
    DEFAULT_GENERATOR.manual_seed(seed)


def get_rng_state(device: Any = None) -> torch.Tensor:
    return DEFAULT_GENERATOR.get_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    DEFAULT_GENERATOR.set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    for state in states:
        set_rng_state(state)
