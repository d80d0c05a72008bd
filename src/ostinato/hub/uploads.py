"""Upload in a daemon thread beside training, one upload after the other.

The client library waits for an answer for as long as it takes, and its own background threads are waited for when the
program ends. Here every upload has a time limit, which grows with its size. An upload that exceeds it is abandoned,
and its daemon thread ends with the program.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from typing import Any

THREAD = "ostinato: uploads"
MINIMUM_SECONDS = 60.0  # for the smallest upload
SLOWEST_BYTES_PER_SECOND = 500_000  # slower connections are considered dead


class UploadTimeoutError(TimeoutError):
    """An upload that took longer than its time limit."""


class Upload:
    """An upload and its result."""

    def __init__(self, send: Callable[[], Any], *, timeout: float, on_end: Callable[[], None]) -> None:
        self.future: Future[Any] = Future()
        self._send, self._timeout, self._on_end = send, timeout, on_end
        self._deadline: float | None = None

    @property
    def is_done(self) -> bool:
        return self.future.done()

    @property
    def error(self) -> BaseException | None:
        """Why it failed, once it is done."""
        return self.future.exception() if self.future.done() and not self.future.cancelled() else None

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit; all of them if it has not started."""
        return self._timeout if self._deadline is None else self._deadline - time.monotonic()

    def run(self) -> None:
        self._deadline = time.monotonic() + self._timeout
        if not self.future.set_running_or_notify_cancel():
            self._on_end()
            return
        try:
            result = self._send()
        except BaseException as error:  # reported in the training thread
            self.end(error=error)
        else:
            self.end(result=result)

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the result; the first call decides."""
        self._on_end()  # first, so that nothing is left when a waiting thread continues
        with suppress(InvalidStateError):
            self.future.set_result(result) if error is None else self.future.set_exception(error)


class Uploads:
    """A queue of uploads, and a thread that exists while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Upload] = deque()
        self._thread: threading.Thread | None = None
        self._current: Upload | None = None

    def start(
        self,
        send: Callable[[], Any],
        *,
        size: int = 0,
        timeout: float | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> Upload:
        """Queue a call of `send`; `on_end` is called whether or not it succeeds."""
        upload = Upload(
            send,
            timeout=MINIMUM_SECONDS + size / SLOWEST_BYTES_PER_SECOND if timeout is None else timeout,
            on_end=on_end,
        )
        with self._lock:
            self._queue.append(upload)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_queue, name=THREAD, daemon=True)
                self._thread.start()
        return upload

    def wait(self, *uploads: Upload) -> None:
        """Wait until the uploads are done or abandoned."""
        for upload in uploads:
            while not upload.is_done:
                current = self._current
                if current is None or current.is_done:
                    time.sleep(0.005)  # the thread is between two
                elif current.seconds_left <= 0:
                    self.abandon()
                else:
                    wait([current.future], timeout=max(current.seconds_left, 0))

    def abandon_if_late(self) -> None:
        """Abandon the current upload if its time limit has passed."""
        current = self._current
        if current is not None and not current.is_done and current.seconds_left <= 0:
            self.abandon()

    def abandon(self) -> None:
        """Abandon the current upload, and drop those behind it."""
        with self._lock:
            current, self._current, self._thread = self._current, None, None
            dropped = [*([current] if current is not None else []), *self._queue]
            self._queue.clear()
        for upload in dropped:
            upload.end(error=UploadTimeoutError("the hub did not answer within the time limit"))

    def _run_queue(self) -> None:
        own = threading.current_thread()
        while True:
            with self._lock:
                if self._thread is not own:  # abandoned: another thread has replaced this one
                    return
                self._current = self._queue.popleft() if self._queue else None
                if self._current is None:
                    self._thread = None
                    return
                current = self._current
            current.run()


class PushInProgress:
    """Uploads in progress, under the name that transformers gives them."""

    def __init__(self, jobs: Iterable[Future[Any]] = (), wait: Callable[[], None] = lambda: None) -> None:
        self.jobs = list(jobs)
        self._wait = wait

    def is_done(self) -> bool:
        """Return whether all uploads have ended; they may have failed."""
        return all(job.done() for job in self.jobs)

    def wait_until_done(self) -> None:
        """Wait for the uploads, within their time limits."""
        self._wait()

    def cancel(self) -> None:
        """Cancel the uploads that have not started."""
        for job in self.jobs:
            job.cancel()
        self.jobs = [job for job in self.jobs if not job.cancelled()]


def finish_at_exit(uploads: Uploads, upload: Upload) -> None:
    """Wait for an upload, within its time limit, when the program ends."""

    def finish() -> None:
        uploads.wait(upload)

    # Thread pools, which the client library uploads with, close before `atexit` runs; this is called before that.
    register: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # the program is ending already
        register(finish)
