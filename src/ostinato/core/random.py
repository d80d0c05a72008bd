"""Seeds, and snapshots of every stream of random numbers that training may draw from."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import accelerator
from .notices import note_once


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed Python, numpy and torch (every device).

    Args:
        seed: The seed.
        deterministic: Also ask torch for deterministic kernels.

    >>> set_seed(42)
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def enable_full_determinism(seed: int, warn_only: bool = False) -> None:
    """Seed, and make every kernel deterministic. Slower; meant for finding a difference between two runs.

    Args:
        seed: The seed.
        warn_only: Warn about kernels that are not deterministic, instead of raising.

    >>> enable_full_determinism(42)  # doctest: +SKIP
    """
    set_seed(seed)
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


@dataclass(frozen=True)
class RandomState:
    """The state of the global streams of Python, numpy, torch and the accelerators."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch: torch.Tensor
    devices: dict[str, list[torch.Tensor]]  # by kind ("cuda", "xpu", ...), then in the order of their numbers

    @classmethod
    def capture(cls, *, with_devices: bool = True) -> RandomState:
        return cls(
            python=random.getstate(),
            numpy=np.random.get_state(legacy=False),  # type: ignore[arg-type]
            torch=torch.get_rng_state(),
            devices=accelerator.read_streams() if with_devices else {},
        )

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> RandomState:
        """Build a state from the values that `export` returned, or an older version of it."""
        values = dict(saved)
        if "devices" not in values:
            cuda, mps = values.pop("cuda"), values.pop("mps")
            found = {"cuda": list(cuda), "mps": [] if mps is None else [mps]}
            values["devices"] = {kind: states for kind, states in found.items() if states}
        return cls(**values)

    def export(self) -> dict[str, Any]:
        """Return the values that a checkpoint holds."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def keep_present_devices(self, source: str) -> RandomState:
        """Return the state without the streams of devices that this machine does not have."""
        kept = {}
        for kind, states in self.devices.items():
            here = accelerator.count_devices() if kind == accelerator.find_kind() else 0
            if len(states) > here:
                note_once(f"{source}: {len(states)} {kind.upper()} streams were saved, {here} can be restored here")
            if here:
                kept[kind] = states[:here]
        return dataclasses.replace(self, devices=kept)

    def is_current(self) -> bool:
        """Return whether nothing has been drawn since."""
        now = RandomState.capture()
        numbers = self.numpy["state"]["key"], now.numpy["state"]["key"]
        return (
            self.python == now.python
            and bool(np.array_equal(*numbers))
            and self.numpy["state"]["pos"] == now.numpy["state"]["pos"]
            and torch.equal(self.torch, now.torch)
            and self.devices.keys() == now.devices.keys()
            and all(all(map(torch.equal, states, now.devices[kind])) for kind, states in self.devices.items())
        )

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        accelerator.write_streams(self.devices)


@contextmanager
def preserve_rng(devices: Sequence[torch.device] | None = None) -> Iterator[None]:
    """Restore the random streams after the block, whatever is drawn inside; those of `devices`, or else of all."""
    state = RandomState.capture(with_devices=devices is None)
    chosen = [(device, accelerator.read_stream(device)) for device in devices or ()]
    try:
        yield
    finally:
        state.restore()
        for device, stream in chosen:
            accelerator.write_stream(device, stream)


def isolate(*, enabled: bool) -> AbstractContextManager[None]:
    """Protect training's random streams from the block, unless the user shares them as transformers does."""
    return preserve_rng() if enabled else nullcontext()
