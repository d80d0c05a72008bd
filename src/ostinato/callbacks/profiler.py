"""Record a few steps with torch's profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.profiler import profile, schedule

from ..core.errors import ConfigError
from ..core.notices import note, warn
from ..core.state import TrainerControl, TrainerState
from .events import CleansUp, QuietCallback


class ProfilerCallback(QuietCallback, CleansUp):
    """Profile a window of steps, and write it as a trace for `chrome://tracing` or Perfetto.

    The file is `profile/steps-<first>-<last>.json` in the run's directory. Before and after the window the profiler
    does not exist. With several processes the first is profiled.

    Args:
        wait: How many steps of this `train` pass first.
        warmup: How many steps are then taken with the profiler on, and discarded.
        active: How many steps are recorded.
        options: For `torch.profiler.profile`, such as `record_shapes=True`, `profile_memory=True`, `with_stack=True`.

    >>> Trainer(..., callbacks=[ProfilerCallback(wait=10, warmup=2, active=3)])  # doctest: +SKIP
    """

    def __init__(self, wait: int = 10, warmup: int = 2, active: int = 3, **options: Any) -> None:
        if wait < 0 or warmup < 0 or active < 1:
            raise ConfigError(
                what=f"ProfilerCallback(wait={wait}, warmup={warmup}, active={active}) has no window",
                why="at least one step has to be recorded",
                fix="ProfilerCallback(wait=10, warmup=2, active=3)",
            )
        self.wait, self.warmup, self.active, self.options = wait, warmup, active, options
        self.trace: Path | None = None  # where it was written
        self._profiler: Any = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.clean_up()
        self._first = state.global_step + self.wait
        self._waits = state.is_world_process_zero
        self.trace = None

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._waits and state.global_step == self._first:
            self._waits = False
            window = schedule(wait=0, warmup=self.warmup, active=self.active, repeat=1)
            self._profiler = profile(schedule=window, **self.options)  # by default of all that torch can record here
            self._profiler.start()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._profiler is None:
            return
        if state.global_step < self._first + self.warmup + self.active:
            self._profiler.step()
        else:
            self._write(args, state)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._profiler is not None and state.global_step > self._first + self.warmup:
            self._write(args, state)
        elif self._profiler is not None or self._waits:
            self.clean_up()
            note(f"nothing was profiled: training ended before step {self._first + self.warmup + 1}")

    def _write(self, args: Any, state: TrainerState) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        first, last = self._first + self.warmup + 1, state.global_step
        trace = Path(args.output_dir or ".") / "profile" / f"steps-{first}-{last}.json"
        try:
            trace.parent.mkdir(parents=True, exist_ok=True)
            trace.unlink(missing_ok=True)
            profiler.export_chrome_trace(str(trace))
            trace.stat()  # torch raises nothing if it cannot write
        except OSError as error:  # a missing profile does not justify stopping the run
            warn(f"the profile of steps {first} to {last} could not be written: {error}")
            return
        self.trace = trace
        note(f"profiled steps {first} to {last}: {trace}")

    def clean_up(self) -> None:
        """Stop the profiler that a run left on when it failed inside its window."""
        if self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            profiler.stop()
