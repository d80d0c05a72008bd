"""The base class of all tracker callbacks: starting, naming numbers, catching up after a resume, and failures."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from numbers import Integral, Real
from typing import Any, ClassVar

import torch

from ..arguments.extras import shorten_names
from ..arguments.secrets import is_secret, redact
from ..arguments.tracker_names import KNOWN, is_installed, make_missing_error
from ..callbacks.events import CleansUp
from ..core.notices import note_once, warn
from ..core.state import ExportableState, TrainerControl, TrainerState
from .sink import Held, Logged, RunInfo, Sink
from .variables import note_ineffective

SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
MAX_FAILURES = 3  # logs in a row, after which a tracker is not used any more


def rewrite_logs(d: Mapping[str, Any]) -> dict[str, Any]:
    """Rename numbers as trackers group them: `eval_` and `test_` become folders, the rest goes to `train/`.

    Args:
        d: The numbers by name.

    Returns:
        The same numbers under their new names.

    >>> rewrite_logs({"loss": 1.0, "eval_loss": 2.0, "test_acc": 0.5})
    {'train/loss': 1.0, 'eval/loss': 2.0, 'test/acc': 0.5}
    """
    return {_add_folder(name): value for name, value in d.items()}


@lru_cache(maxsize=1024)  # every log has the same names
def _add_folder(name: str) -> str:
    for prefix in ("eval", "test"):
        if name.startswith(f"{prefix}_"):
            return f"{prefix}/{name[len(prefix) + 1 :]}"
    return f"train/{name}"


def select_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a log; report once what is none."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        if type(value) is float or type(value) is int:  # nearly always; the other checks are slower
            found[name] = value
            continue
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, Integral):
            found[name] = int(value)
        elif isinstance(value, Real):
            found[name] = float(value)
        else:
            kind = type(value).__name__
            note_once(f"trackers take numbers: {name} is a {kind} and is not sent", key=f"not a number: {name}")
    return found


class TrackerCallback(CleansUp, ExportableState):
    """Sends what is logged to a tracker, from the first process only.

    Pass a sink, or override `open`. The id of the tracker's run is saved in checkpoints, so that a resumed run
    continues it. A tracker that fails is reported once and never stops training.

    Args:
        sink: where numbers go; None if `open` is overridden.

    >>> Trainer(..., callbacks=[TrackerCallback(MySink())])  # doctest: +SKIP
    """

    tracker: ClassVar[str] = ""  # what report_to calls it
    prefixed: bool = True  # whether names get `train/`, `eval/` and `test/`
    logs_predictions: ClassVar[bool] = False  # whether the metrics of `predict` are sent as well
    # Environment variables that the callback or the tracker's package reads, and what each decides.
    variables: ClassVar[Mapping[str, str]] = {}
    # Variables of transformers' callback that decide nothing here, and what to do instead.
    ineffective_variables: ClassVar[Mapping[str, str]] = {}

    def __init__(self, sink: Sink | None = None) -> None:
        if self.tracker and not is_installed(self.tracker):
            raise make_missing_error(self.tracker)
        self.run_id: str | None = None
        self._given_sink = sink
        self._sink: Sink | None = None
        self._held: Held | None = None
        self._pending: list[Logged] = []  # not sent yet, under the names they were logged with
        self._sent_at = float("-inf")
        self._failures = 0
        self._is_off = self._has_warned = False
        self._is_training = self._has_trained = False

    def package(self) -> Any:
        """Return the tracker's own package, imported when it is needed."""
        return import_module(KNOWN[self.tracker][0] or "")

    def open(self) -> Sink:
        """Return a sink for a run.

        Raises:
            NotImplementedError: No sink was given, and the class does not override it.
        """
        if self._given_sink is None:
            raise NotImplementedError(f"{type(self).__name__} needs a sink, or an open() that returns one")
        return self._given_sink

    # ---- events --------------------------------------------------------------------------------

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        self._failures, self._is_off = 0, False
        self._sent_at = float("-inf")  # send the first numbers of a run at once
        continues = state.global_step > 0
        if not continues and self._has_trained:
            self._finish()
            self.run_id = None  # of an earlier call of train()
        elif continues:
            self._finish()  # opened by an evaluation, perhaps before the checkpoint was read
        self._is_training = self._has_trained = True
        self.setup(args, state, model)

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Any = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or self._is_off or not logs:
            return
        if self._sink is None:  # an evaluation before training, or a prediction after it
            self.setup(args, state, model)
        self._pending.append(Logged(select_numbers(logs), state.global_step, time.time()))
        if not self._is_training:
            self.flush()  # nothing may end this run
        elif self._is_due(control):
            self._send_pending()

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any, **kwargs: Any) -> None:
        if self.logs_predictions:
            self.on_log(args, state, control, logs=metrics, **kwargs)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._is_training = False
        self._finish()

    def clean_up(self) -> None:
        """Send what is pending: the run has failed."""
        self._is_training = False
        self.flush()

    # ---- running --------------------------------------------------------------------------

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        """Start the tracker's run, or continue it. A subclass may record more.

        Args:
            args: The training arguments.
            state: The state of the run.
            model: The model.
            **kwargs: What the event receives besides.
        """
        if not state.is_world_process_zero or self._sink is not None:
            return
        note_ineffective(self.ineffective_variables)
        run = self.describe(args, state, model)
        with self._report_errors("could not be started", is_fatal=True):
            sink = self.open()
            self.run_id = sink.start(run)
            self._sink = sink
            if run.step:
                self._catch_up(sink, run, state)

    def describe(self, args: Any, state: TrainerState, model: Any) -> RunInfo:
        """Return the description of the run for the tracker.

        Args:
            args: The training arguments.
            state: The state of the run.
            model: The model.

        Returns:
            The description, without secrets.
        """
        to_dict = getattr(args, "to_dict", None)  # arguments may be a plain object, with a few attributes
        content: Any = to_dict() if callable(to_dict) else vars(args)
        return RunInfo(
            name=getattr(args, "run_name", None),
            output_dir=getattr(args, "output_dir", None) or ".",
            hyper_parameters=_mask_secrets(shorten_names(args, content)),
            model_config=_mask_secrets(read_config(model)),
            run_id=self.run_id,
            step=state.global_step if self._is_training else None,
            trial=getattr(state, "trial_name", None),
            args=args,
            model=model,
        )

    def _catch_up(self, sink: Sink, run: RunInfo, state: TrainerState) -> None:
        """Log again what the tracker has lost of the steps before the checkpoint."""
        self._held = held = sink.held(run)
        now = time.time()
        for entry in state.log_history:
            step = int(entry.get("step", 0))
            if step >= held.complete_before:
                numbers = select_numbers({name: value for name, value in entry.items() if name != "step"})
                self._pending.append(Logged(numbers, step, now))
        self._send_pending()

    def _is_due(self, control: TrainerControl) -> bool:
        """Return whether numbers have waited long enough, or something else than a step comes next."""
        patience = 0.0 if self._sink is None else self._sink.patience
        long_enough = not patience or time.monotonic() - self._sent_at >= patience
        return long_enough or control.should_evaluate or control.should_save or control.should_training_stop

    def _send_pending(self) -> None:
        """Send what is pending: together where the sink takes many logs at once, else one by one."""
        waiting, self._pending = self._pending, []
        if not waiting:
            return
        self._sent_at = time.monotonic()
        ready = [one for one in map(self._rename_numbers, waiting) if one.numbers]
        together = self._sink is not None and self._sink.patience
        for logs in [ready] if together and ready else [[one] for one in ready]:
            if self._sink is None:
                return
            with self._report_errors("did not accept the logged numbers"):
                self._sink.log_all(logs)
                self._failures = 0
        summary = next((one.numbers for one in waiting if "train_runtime" in one.numbers), None)
        if summary is not None and self._sink is not None:
            with self._report_errors("did not accept the summary"):
                self._sink.summarize({name: summary[name] for name in SUMMARY if name in summary})

    def _rename_numbers(self, logged: Logged) -> Logged:
        """Return the numbers under the tracker's names, without those that it has already."""
        numbers = rewrite_logs(logged.numbers) if self.prefixed else dict(logged.numbers)
        if self._held is not None:
            numbers = self._drop_held(self._held, numbers, logged.step)
        return logged._replace(numbers=numbers)

    def _drop_held(self, held: Held, numbers: dict[str, float], step: int) -> dict[str, float]:
        left = {}
        for name, value in numbers.items():
            is_there, differs = held.take(step, name, value)
            if differs:
                note_once(
                    f"{self._name} has {name} of step {step} already, with another value from an earlier attempt; "
                    "both are there now",
                    key=f"{self._name} has other numbers",
                )
            if not is_there:
                left[name] = value
        return left

    def _finish(self) -> None:
        self._send_pending()
        sink, self._sink, self._held = self._sink, None, None
        if sink is not None:
            with self._report_errors("could not be finished"):
                sink.finish()

    def flush(self) -> None:
        """Make sure that nothing logged so far can be lost."""
        self._send_pending()
        if self._sink is not None:
            with self._report_errors("could not write"):
                self._sink.flush()

    # ---- failures -------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self.tracker or type(self._given_sink or self).__name__

    @contextlib.contextmanager
    def _report_errors(self, what: str, *, is_fatal: bool = False) -> Iterator[None]:
        """Report the first error of a tracker, and never let one stop training."""
        try:
            yield
        except Exception as error:
            self._failures += 1
            self._is_off = self._is_off or is_fatal or self._failures >= MAX_FAILURES
            if is_fatal or self._is_off:
                self._abandon()
            if not self._has_warned:
                self._has_warned = True
                then = "nothing more is sent to it" if self._is_off else "the next numbers are sent again"
                warn(f"the tracker {self._name} {what}: {_summarize_error(error)}; training continues, and {then}")

    def _abandon(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            with contextlib.suppress(Exception):
                sink.finish()

    # ---- checkpoints ---------------------------------------------------------------------------

    @property
    def _initialized(self) -> bool:
        """Whether the tracker's run is open; read by subclasses of transformers' callbacks."""
        return self._sink is not None

    def state(self) -> dict[str, Any]:
        """Return the id of the tracker's run, for a checkpoint, and flush what was logged until now."""
        self.flush()
        return {"args": {}, "attributes": {"run_id": self.run_id}}


def read_config(model: Any) -> dict[str, Any]:
    """Return the configuration of a model as plain data."""
    found: dict[str, Any] = {}
    for name in ("config", "peft_config"):
        config: Any = getattr(model, name, None)
        to_dict: Callable[[], Any] | None = getattr(config, "to_dict", None)
        content = to_dict() if callable(to_dict) else config
        if isinstance(content, dict):
            found.update({name: content} if name == "peft_config" else content)
    return found


def _mask_secrets(content: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        str(name): redact(str(name))
        if is_secret(str(name))
        else _mask_secrets(value)
        if isinstance(value, Mapping)
        else value
        for name, value in content.items()
    }


def _summarize_error(error: Exception) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # some are coloured
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
