"""Streams, events, and what has not happened yet.

Kernels compute when they are launched: their results are those of a device that is as fast as can be. What is as slow
as can be is what the host may notice. Every stream numbers what it is given, and everybody, the host and each stream,
keeps a clock: for each stream, the number up to which what was launched is known to be done. Waiting merges clocks.
Two uses of one piece of memory that no clock orders are a mistake, and so is reading what a late copy has not brought.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.support.pretend_device.device_settings import DEVICE
from tests.support.pretend_device.host_waits import find_line, note_wait

Clock = dict[int, int]  # stream -> number of its last launch that is known to be done
DEFAULT = 0  # the stream that is used unless another one is asked for
PATIENCE = 2  # how often a hostile device says "not yet" to a query
DEVICE_TYPES = {"CUDA": 1, "PrivateUse1": 20}  # c10::DeviceType
NativeStream: Any = torch.Stream


class UnorderedAccess(AssertionError):
    """Two uses of the same memory between which nothing waits: on a device either may come first."""


@dataclass
class LateCopy:
    """A copy that was asked for and may happen any time until somebody waits for it."""

    stream: int
    number: int
    finish: Callable[[], None]


class Timeline:
    """What every stream was given, and who knows how much of it is done."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.launched: Clock = {DEFAULT: 0}
        self.host: Clock = {}
        self.clocks: dict[int, Clock] = {DEFAULT: {}}
        self.late: list[LateCopy] = []
        self.free_at: dict[int, float] = {}  # when a stream has done all it was given, if kernels take time
        self.before_merge: list[Callable[[], None]] = []  # called before anybody learns what is done
        self._current = threading.local()

    @property
    def current(self) -> int:
        return getattr(self._current, "stream", DEFAULT)

    @current.setter
    def current(self, stream: int) -> None:
        self._current.stream = stream

    def open_stream(self) -> int:
        with self.lock:
            stream = len(self.launched)
            self.launched[stream] = 0
            self.clocks[stream] = {}
            return stream

    def launch(self) -> tuple[int, int]:
        """Give the current stream one more thing to do; return the stream and the number."""
        if DEVICE.is_forked:
            raise RuntimeError(f"Cannot use {DEVICE.type} in a forked process: start it with 'spawn'")
        with self.lock:
            stream = self.current
            self.launched[stream] += 1
            if DEVICE.kernel_seconds:
                self.free_at[stream] = max(self.free_at.get(stream, 0.0), time.perf_counter()) + DEVICE.kernel_seconds
            return stream, self.launched[stream]

    def is_after(self, stream: int, use: tuple[int, int]) -> bool:
        """Say whether what `stream` does next comes after a use in another one."""
        other, number = use
        return other == stream or number <= max(self.clocks[stream].get(other, 0), self.host.get(other, 0))

    def snapshot(self, stream: int) -> Clock:
        """Return what will be known once all that `stream` was given is done."""
        return merge(self.clocks[stream], {stream: self.launched[stream]})

    def order(self, stream: int, clock: Clock, free_at: float) -> None:
        """Let what `stream` is given from now on wait for a point in time."""
        with self.lock:
            self._announce()
            self.clocks[stream] = merge(self.clocks[stream], clock)
            self.free_at[stream] = max(self.free_at.get(stream, 0.0), free_at)

    def wait(self, kind: str, clock: Clock, free_at: float = 0.0) -> None:
        """Let the host wait until a point in time, and tell of the death of the device."""
        with self.lock:
            self._announce()
            is_new = any(number > self.host.get(stream, 0) for stream, number in clock.items())
            self.host = merge(self.host, clock)
            if is_new:
                note_wait(kind, drains=all(self.host.get(one, 0) >= last for one, last in self.launched.items()))
            if DEVICE.kernel_seconds:
                time.sleep(max(0.0, free_at - time.perf_counter()))
            self._finish_late_copies()
        raise_if_dead()

    def wait_for_stream(self, kind: str, stream: int | None = None) -> None:
        stream = self.current if stream is None else stream
        self.wait(kind, self.snapshot(stream), self.free_at.get(stream, 0.0))

    def wait_for_all(self, kind: str) -> None:
        self.wait(kind, dict(self.launched), max(self.free_at.values(), default=0.0))

    def is_done(self, clock: Clock) -> bool:
        return all(number <= self.host.get(stream, 0) for stream, number in clock.items())

    def forget(self) -> None:
        """Finish nothing that is late, and order everything that was launched: a new test begins."""
        with self.lock:
            self.late.clear()
            self.host = dict(self.launched)
            self.free_at.clear()

    def _announce(self) -> None:
        for call in self.before_merge:
            call()

    def _finish_late_copies(self) -> None:
        done = [copy for copy in self.late if copy.number <= self.host.get(copy.stream, 0)]
        self.late = [copy for copy in self.late if copy not in done]
        for copy in done:
            copy.finish()


def merge(one: Clock, other: Clock) -> Clock:
    """Return what is known to whoever knows both."""
    return {stream: max(one.get(stream, 0), other.get(stream, 0)) for stream in one.keys() | other.keys()}


def raise_if_dead() -> None:
    """Tell the host of the assert that ended the device."""
    if DEVICE.death:
        DEVICE.is_death_known = True
        raise torch.AcceleratorError(DEVICE.death)


TIMELINE = Timeline()


class Use:
    """Who wrote to a piece of memory last, and who has read it since."""

    __slots__ = ("line", "reads", "write")

    def __init__(self) -> None:
        self.write: tuple[int, int] = (DEFAULT, 0)
        self.reads: Clock = {}
        self.line = ""

    def note(self, stream: int, number: int, *, writes: bool) -> None:
        """Write down a use, and check that it comes after those it depends on."""
        if DEVICE.hostile:
            self._check(stream, writes=writes)
        if writes:
            self.write, self.reads = (stream, number), {}
        else:
            self.reads[stream] = number
        if stream != DEFAULT:
            self.line = find_line()[0]

    def is_over(self, stream: int) -> bool:
        """Say whether everything that was done with the memory is done before `stream` goes on."""
        return all(TIMELINE.is_after(stream, use) for use in (self.write, *self.reads.items()))

    def _check(self, stream: int, *, writes: bool) -> None:
        before = [self.write, *(self.reads.items() if writes else ())]
        for use in before:
            if not TIMELINE.is_after(stream, use):
                raise UnorderedAccess(
                    f"stream {stream} {'writes' if writes else 'reads'} memory at {find_line()[0]} that stream "
                    f"{use[0]} used before (the other stream: {self.line}): nothing makes one wait for the other"
                )


# ---------------------------------------------------------------------------------------- what torch offers of this


class Stream(NativeStream):
    """A queue of the device; a torch.Stream, so that torch accepts it."""

    def __new__(cls, device: Any = None, priority: int = 0, **known: Any) -> Stream:
        number = known.get("stream_id")
        number = TIMELINE.open_stream() if number is None else number
        return super().__new__(cls, stream_id=number, device_index=0, device_type=DEVICE_TYPES[DEVICE.key])

    def __init__(self, *_: Any, **__: Any) -> None:
        self._previous: list[int] = []

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    def synchronize(self) -> None:
        TIMELINE.wait_for_stream("stream", self.stream_id)

    def wait_stream(self, other: torch.Stream) -> None:
        TIMELINE.order(self.stream_id, TIMELINE.snapshot(other.stream_id), TIMELINE.free_at.get(other.stream_id, 0.0))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return self.record_event().query()

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        self._previous.append(TIMELINE.current)
        TIMELINE.current = self.stream_id
        return self

    def __exit__(self, *_: object) -> None:
        TIMELINE.current = self._previous.pop()


class Event:
    """A mark in a stream."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, **_: Any) -> None:
        self.device = DEVICE.device
        self._enable_timing = enable_timing
        self._clock: Clock = {}
        self._time = 0.0
        self._queries = 0

    def record(self, stream: torch.Stream | None = None) -> None:
        number = TIMELINE.current if stream is None else stream.stream_id
        self._clock, self._queries = TIMELINE.snapshot(number), 0
        self._time = max(TIMELINE.free_at.get(number, 0.0), time.perf_counter())

    def wait(self, stream: torch.Stream | None = None) -> None:
        TIMELINE.order(TIMELINE.current if stream is None else stream.stream_id, self._clock, self._time)

    def synchronize(self) -> None:
        TIMELINE.wait("event", self._clock, self._time)

    def query(self) -> bool:
        """Say whether all before the mark is done; a hostile device takes its time."""
        if TIMELINE.is_done(self._clock):
            return True
        self._queries += 1
        is_late = DEVICE.hostile and self._queries <= PATIENCE
        if is_late or (DEVICE.kernel_seconds and self._time > time.perf_counter()):
            return False
        with TIMELINE.lock:
            TIMELINE.host = merge(TIMELINE.host, self._clock)
            TIMELINE._finish_late_copies()
        return True

    def elapsed_time(self, end: Event) -> float:
        if not (self._enable_timing and end._enable_timing):
            raise RuntimeError("both events must be created with enable_timing=True")
        return (end._time - self._time) * 1000.0


def current_stream(device: Any = None) -> Stream:
    return Stream(stream_id=TIMELINE.current)


def default_stream(device: Any = None) -> Stream:
    return Stream(stream_id=DEFAULT)


def set_stream(stream: torch.Stream) -> None:
    TIMELINE.current = stream.stream_id


class StreamContext:
    """`with torch.cuda.stream(s)`, where None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()
