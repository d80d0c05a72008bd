"""Show how far a run is: one live bar on a terminal, plain lines in a pipe or a file.

training Bert on cpu in float32: 4.4 M parameters, 9,000 rows, 1,125 steps of 24 rows, about 2:31
step  500  epoch 1.33  loss 0.3127  lr 2.8e-05  grad 1.9
step  500  epoch 1.33  eval  loss 0.2914  accuracy 0.8912 best  1.6 s
train ━━━━━━━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━━━━━  67%  step 750/1125  epoch 2.00/3  0:51 left
      loss 0.2514  lr 1.7e-05  grad 1.2  412 samples/s  compute 91%  data 6%  eval 3%
done in 2:31: best accuracy 0.8934 at step 1000; results in out
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping
from typing import Any

from ..callbacks.events import QuietCallback
from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState
from . import table
from .format import Line
from .live import Screen, open_screen
from .messages import ObservedRun, find_advice, format_closing, format_header
from .plain import PrinterCallback, format_plain_line, print_line, select_shown, to_number
from .speed import Clock, find_length, format_duration

__all__ = ["PrinterCallback", "ProgressCallback"]

SECONDS_BETWEEN_CHECKS = 5  # of where the time goes


class ProgressCallback(QuietCallback):
    """Shows steps, loss, rate, speed and time left, and a line for every log and every evaluation.

    Call `stop` when training ends without `on_train_end`.

    Args:
        max_str_len: cut logged texts to this many characters.

    >>> trainer.add_callback(ProgressCallback(max_str_len=40))  # doctest: +SKIP
    """

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self._screen: Screen | None = None  # while something is live on a terminal
        self._training = False
        self._best: float | None = None
        self._batches = 0  # of the current evaluation
        self._loader: Any = None
        self._logged: Mapping[str, Any] = {}
        self._watched: ObservedRun | None = None
        self._is_first_step = False  # whether the next step to end is the first
        self._clock = Clock()
        self._check_at = 0.0

    def watch(self, run: ObservedRun) -> None:
        """Show this run, from its beginning to its end.

        Args:
            run: The run.
        """
        self._watched = run

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        watched = self._watched
        self.stop()
        if not state.is_world_process_zero:
            return
        self._watched = watched
        self._training, self._is_first_step, self._clock = True, True, Clock()
        self._screen = open_screen(self.max_str_len)
        if self._watched is not None:
            self._show_header(self._watched)
        if self._screen is not None:
            atexit.register(self.stop)  # after an uncaught exception, too
            samples = args.train_batch_size * args.data_size * args.gradient_accumulation_steps
            self._screen.begin_training(state, samples_per_step=samples, watched=self._watched)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._screen is not None:
            self._screen.mark_step(state)
        elif self._training:
            self._clock.mark_step(state.global_step)
        if self._is_first_step:
            self._is_first_step = False
            if not control.should_log:
                self._show_first_loss(state)

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: TrainerControl, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        if self._batches == 0 or eval_dataloader is not self._loader:  # another loader: the last one was interrupted
            self._begin_evaluation(eval_dataloader)
        self._batches += 1
        if self._screen is not None:
            self._screen.mark_batch(self._batches)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        # `Trainer.evaluate` logs its metrics first; an overridden `evaluate` may not.
        if metrics and not select_shown(metrics).keys() <= self._logged.keys():
            self._report(args, state, metrics)
        self._end_evaluation()

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self._end_evaluation()

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._screen is not None:
            self._screen.clock.mark_pause()

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and logs:
            self._logged = logs
            self._report(args, state, logs)
            self._advise()

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        duration = format_duration(time.monotonic() - self._clock.started)
        if self._screen is not None and self._training:
            self._screen.finish(state, duration, self._build_evaluation_tables(self._screen, args, state))
        watched, ended = self._watched, state.is_world_process_zero and self._training
        self.stop()
        if watched is not None and ended:
            print_line(format_closing(args, state, duration, watched.results))

    def stop(self) -> None:
        """Close the live display. Safe to call at any time, any number of times."""
        screen, self._screen = self._screen, None
        self._training, self._is_first_step, self._best = False, False, None
        self._batches, self._loader, self._logged = 0, None, {}
        self._watched = None
        if screen is not None:
            atexit.unregister(self.stop)
            screen.close()

    def show_skipping(self, done: int | None, total: int, unit: str) -> bool:
        """Show how far a resumed run has read again; None when it is done. Return whether it is shown.

        Args:
            done: How much has been read; None when it is done.
            total: How much there is to read.
            unit: What is counted.

        Returns:
            True if a progress bar is on the screen.
        """
        if self._screen is not None:
            self._screen.show_skipped(None if done is None else (done, total, unit))
        return self._screen is not None

    def show_saving(self, name: str | None, done: int, total: int) -> None:
        """Show how many bytes of a save are written while training waits; None when it is done.

        Args:
            name: The name of what is saved; None when it is done.
            done: The number of bytes written.
            total: The number of bytes in all.
        """
        if self._screen is not None:
            self._screen.show_save(None if name is None else (name, done, total))

    # ---- messages ----------------------------------------------------------------

    def _show_header(self, run: ObservedRun) -> None:
        seconds = run.expected()
        if self._screen is None:
            print_line(format_header(run.header, seconds))
        elif seconds is None:
            self._screen.show_header(run.header)
        else:
            self._screen.print_line(format_header(run.header, seconds))

    def _show_first_loss(self, state: TrainerState) -> None:
        """Show the loss of the first step: hundreds of steps may pass until the first log."""
        loss = None if self._watched is None else self._watched.first_loss()
        if loss is not None and self._screen is not None:
            self._screen.show_loss(loss)
        elif loss is not None:
            print_line(format_plain_line(state, {"loss": loss}, max_str_len=self.max_str_len))

    def _advise(self) -> None:
        watched, now = self._watched, time.monotonic()
        if watched is None or now < self._check_at:
            return
        self._check_at = now + SECONDS_BETWEEN_CHECKS
        if line := find_advice(watched.seconds(), watched.workers, watched.cores):
            note_once(line, key="loader-bound")

    # ---- one evaluation ------------------------------------------------------------------------

    def _begin_evaluation(self, loader: Any) -> None:
        self._batches, self._loader = 0, loader
        if self._screen is None and not self._training:
            self._screen = open_screen(self.max_str_len)
            if self._screen is not None:
                atexit.register(self.stop)
        if self._screen is not None:
            self._screen.begin_evaluation(find_length(loader))

    def _end_evaluation(self) -> None:
        self._batches, self._loader, self._logged = 0, None, {}
        if not self._training:
            self.stop()
        elif self._screen is not None:
            self._screen.end_evaluation()

    # ---- lines ---------------------------------------------------------------------------------

    def _report(self, args: Any, state: TrainerState, logs: Mapping[str, Any]) -> None:
        best = self._find_new_best(args, state, logs) if self._training else None
        screen = self._screen or (None if self._training else open_screen(self.max_str_len))
        if screen is None:
            print_line(
                format_plain_line(
                    state, logs, best=best, left=self._format_time_left(state, logs), max_str_len=self.max_str_len
                )
            )
        else:
            screen.log(state, logs, best=best)

    def _format_time_left(self, state: TrainerState, logs: Mapping[str, Any]) -> str | None:
        """Return the time left, to be shown with a loss; None before the second step."""
        steps = state.max_steps - state.global_step
        seconds = self._clock.seconds_left(steps) if self._training and "loss" in logs and steps > 0 else None
        return None if seconds is None else format_duration(seconds)

    def _build_evaluation_tables(self, screen: Screen, args: Any, state: TrainerState) -> list[Line]:
        return table.build_tables(
            state.log_history,
            args.metric_for_best_model,
            greater_is_better=args.greater_is_better,
            width=screen.console.width,
            is_ascii=screen.is_ascii,
        )

    def _find_new_best(self, args: Any, state: TrainerState, logs: Mapping[str, Any]) -> str | None:
        """Return the metric that decides about the best model, if these logs improve it.

        `state.best_metric` is of no help alone: it is brought up to date after the evaluation has been shown.
        """
        if not args.metric_for_best_model:
            return None
        name = args.metric_for_best_model
        name = name if name.startswith("eval_") else f"eval_{name}"
        number = to_number(logs.get(name))
        if number is None:
            return None
        greater = not name.endswith("loss") if args.greater_is_better is None else args.greater_is_better
        rivals = [best for best in (state.best_metric, self._best) if best is not None]
        if not all(number > best if greater else number < best for best in rivals):
            return None
        self._best = number
        return name
