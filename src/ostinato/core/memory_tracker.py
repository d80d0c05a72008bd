"""Measure the memory that a stage of a trainer takes: of the process, and of its accelerator."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from . import accelerator

SAMPLE_SECONDS = 0.01
# The stages, by the method that measures them.
STAGES = {
    "__init__": "init",
    "train": "train",
    "_inner_training_loop": "train",
    "evaluate": "eval",
    "predict": "test",
    "finish": "train",
}


def read_resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; None if the system does not report it."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)  # unbuffered: logs call this, too
    except OSError:
        return None
    try:
        return int(os.read(descriptor, 128).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class MemoryUse:
    """Bytes at the beginning of a stage, at its end, and at most in between."""

    begin: int
    end: int
    peak: int | None  # None if it is not counted

    def to_metrics(self, stage: str, where: str) -> dict[str, int]:
        """Return the memory that remains in use after a stage, and how much more it was at its peak.

        >>> MemoryUse(begin=10, end=14, peak=20).to_metrics("train", "cpu")
        {'train_mem_cpu_alloc_delta': 4, 'train_mem_cpu_peaked_delta': 6}
        """
        used = {f"{stage}_mem_{where}_alloc_delta": self.end - self.begin}
        if self.peak is not None:
            used[f"{stage}_mem_{where}_peaked_delta"] = max(self.peak - self.end, 0)
        return used


class TrainerMemoryTracker:
    """Measure the stages of a trainer (`skip_memory_metrics=False`); a stage inside another is part of it.

    Users call `start` and `stop_and_update_metrics` in the methods that they override, so the stage is identified by
    the name of the caller.

    Args:
        skip_memory_metrics: Measure nothing.
        device: The device to measure; by default the current accelerator.

    >>> class MyTrainer(Trainer):  # doctest: +SKIP
    ...     def predict(self, test_dataset):
    ...         self._memory_tracker.start()
    ...         output = super().predict(test_dataset)
    ...         self._memory_tracker.stop_and_update_metrics(output.metrics)
    ...         return output
    """

    def __init__(self, skip_memory_metrics: bool = False, device: torch.device | None = None) -> None:
        self.skip_memory_metrics = skip_memory_metrics
        self.device = accelerator.get_current() if device is None else device
        self._stage: str | None = None
        self._sampler: _MemorySampler | None = None
        self._device_begin = 0
        self._init: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Begin the stage of the calling method, unless another is in progress."""
        if self.skip_memory_metrics or self._stage is not None:
            return
        self._stage = _get_caller_stage()
        gc.collect()
        device = accelerator.read_memory(self.device)
        if device is not None:
            accelerator.reset_peak_memory(self.device)
            self._device_begin = device.allocated
        self._sampler = _MemorySampler()
        if self._stage == "init":
            self._before = {"before_init_mem_cpu": self._sampler.begin}
            self._before |= {"before_init_mem_gpu": self._device_begin} if device is not None else {}

    def stop_and_update_metrics(self, metrics: dict[str, Any] | None = None) -> None:
        """End the stage of the calling method, and add its memory to `metrics`.

        Args:
            metrics: The metrics to add to; None ends the stage only.
        """
        if (
            self.skip_memory_metrics
            or self._stage is None
            or self._stage != _get_caller_stage()
            or self._sampler is None
        ):
            return
        stage, self._stage = self._stage, None
        gc.collect()
        used = self._sampler.stop().to_metrics(stage, "cpu")
        if (device := accelerator.read_memory(self.device)) is not None:
            used |= MemoryUse(self._device_begin, device.allocated, device.peak).to_metrics(stage, "gpu")
        if stage == "init":
            self._init = used
        if metrics is not None:
            first = {} if stage == "init" or not self._init else self._init
            metrics.update({**first, **used, **(self._before if first else {})})
            self._init = {}  # reported once, with the first stage that is measured

    @contextmanager
    def end_stage_on_error(self) -> Iterator[None]:
        """End a stage that began inside the block if the block fails, so that the next one can be measured.

        Returns:
            A context manager.
        """
        outer = self._stage
        try:
            yield
        except BaseException:
            if self._stage != outer and self._sampler is not None:
                self._sampler.stop()
                self._stage = self._sampler = None
            raise


class _MemorySampler:
    """Read the memory of the process at intervals, in a separate thread."""

    def __init__(self) -> None:
        self.begin = self._peak = read_resident_bytes() or 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, read_resident_bytes() or 0)

    def stop(self) -> MemoryUse:
        self._ended.set()
        self._thread.join()
        end = read_resident_bytes() or 0
        return MemoryUse(self.begin, end, max(self._peak, end))


def _get_caller_stage() -> str:
    name = sys._getframe(2).f_code.co_name
    return STAGES.get(name, name)
