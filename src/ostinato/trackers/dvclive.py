"""Log to DVCLive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from ..checkpoint.weights import save_model
from ..core.state import TrainerControl, TrainerState
from .checkpoint_upload import UploadsCheckpoints
from .sink import Held, Numbers, RunInfo, Sink
from .variables import is_set


class DvcliveSink(Sink):
    """Writes DVCLive's files into `dvclive`, or to a `Live` of the user's, which stays open."""

    def __init__(self, module: Any, live: Any = None, **options: Any) -> None:
        self.module, self.live, self.options = module, live, options
        self._is_theirs = live is not None

    def start(self, run: RunInfo) -> str | None:
        if not self._is_theirs:
            self.live = self.module.Live(resume=run.run_id is not None, **self.options)
        if run.run_id is None:
            self.live.log_params({name: _to_plain(value) for name, value in run.everything.items()})
        return str(self.live.dir)

    def held(self, run: RunInfo) -> Held:
        """Its files are tables by name: `<dir>/plots/metrics/train/loss.tsv`."""
        held = Held()
        for path in Path(self.live.dir, "plots", "metrics").rglob("*.tsv") if run.run_id is not None else ():
            name = os.fspath(path.relative_to(Path(self.live.dir, "plots", "metrics")).with_suffix(""))
            lines = path.read_text(encoding="utf-8").splitlines()
            for line in lines[1:]:
                cells = dict(zip(lines[0].split("\t"), line.split("\t"), strict=False))
                held.add(int(cells["step"]), Path(name).as_posix(), float(cells[path.stem]))
        return held

    def log(self, numbers: Numbers, step: int) -> None:
        self.live.step = step
        for name, value in numbers.items():
            self.live.log_metric(name, value)
        self.live.make_summary()

    def finish(self) -> None:
        if not self._is_theirs:
            self.live.end()


def _to_plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


class DVCLiveCallback(UploadsCheckpoints):
    """Logs to DVCLive; needs the package dvclive.

    Args:
        live: a `Live` of your own, which stays open.
        log_model: True logs the model after training, "all" the output directory after every save. None: as
            HF_DVCLIVE_LOG_MODEL says.
        **kwargs: for the `Live` that is made otherwise.

    >>> TrainingArguments("out", report_to="dvclive")  # doctest: +SKIP
    """

    tracker = "dvclive"
    variables = {"HF_DVCLIVE_LOG_MODEL": "true: the final model is logged; all: output_dir, after every save"}

    def __init__(self, live: Any = None, log_model: Literal["all"] | bool | None = None, **kwargs: Any) -> None:
        super().__init__()
        self._live, self._options = live, kwargs
        self._given_log_model = log_model

    def open(self) -> DvcliveSink:
        return DvcliveSink(self.package(), self._live, **self._options)

    @property
    def _log_model(self) -> str | bool:
        if self._given_log_model is not None:
            return self._given_log_model
        says_all = os.environ.get("HF_DVCLIVE_LOG_MODEL", "").lower() == "all"
        return "all" if says_all else is_set("HF_DVCLIVE_LOG_MODEL")

    def uploads_checkpoints(self) -> bool:
        return self._log_model == "all"

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        assert isinstance(self._sink, DvcliveSink)
        self._sink.live.log_artifact(args.output_dir)

    def on_train_end(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(self._sink, DvcliveSink) and self._log_model is True:
            with self._report_errors("did not accept the model"):
                name = "best" if args.load_best_model_at_end else "last"
                directory = Path(args.output_dir, name)
                save_model(model, directory, processing_class=processing_class)
                self._sink.live.log_artifact(str(directory), name=name, type="model", copy=True)
        super().on_train_end(args, state, control, **kwargs)
