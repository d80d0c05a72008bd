"""Seeds, and snapshots of every stream of random numbers that training may draw from."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


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
    cuda: list[torch.Tensor]
    mps: torch.Tensor | None

    @classmethod
    def capture(cls) -> RandomState:
        in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
        return cls(
            python=random.getstate(),
            numpy=np.random.get_state(legacy=False),  # type: ignore[arg-type]
            torch=torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if in_use else [],
            mps=torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
        )

    def is_current(self) -> bool:
        """Return whether nothing has been drawn since."""
        now = RandomState.capture()
        numbers = self.numpy["state"]["key"], now.numpy["state"]["key"]
        return (
            self.python == now.python
            and bool(np.array_equal(*numbers))
            and self.numpy["state"]["pos"] == now.numpy["state"]["pos"]
            and torch.equal(self.torch, now.torch)
            and all(map(torch.equal, self.cuda, now.cuda))
        )

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the random streams after the block, whatever is drawn inside."""
    state = RandomState.capture()
    try:
        yield
    finally:
        state.restore()


def isolate(*, enabled: bool) -> AbstractContextManager[None]:
    """Protect training's random streams from the block, unless the user shares them as transformers does."""
    return preserve_rng() if enabled else nullcontext()
