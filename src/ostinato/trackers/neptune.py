"""Log to Neptune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.state import TrainerState
from .checkpoint_upload import UploadsCheckpoints
from .sink import Numbers, RunInfo, Sink


class NeptuneSink(Sink):
    """Logs to a run of Neptune, below `base_namespace`; a `run` of the user's stays open."""

    def __init__(
        self, module: Any, run: Any, base_namespace: str, options: dict[str, Any], *, logs_parameters: bool = True
    ) -> None:
        self.module, self.run, self.base, self.options = module, run, base_namespace, options
        self.logs_parameters = logs_parameters
        self._is_theirs = run is not None
        self._replaced: str | None = None  # the checkpoint that the next one replaces

    def start(self, run: RunInfo) -> str | None:
        if not self._is_theirs:
            options = dict(self.options)
            if run.run_id is not None:
                options["with_id"] = run.run_id
            elif run.trial or run.name:
                options.setdefault("name", run.trial or run.name)
            self.run = self.module.init_run(**options)
        if run.run_id is None and self.logs_parameters:
            as_text = self.module.utils.stringify_unsupported
            self.run[f"{self.base}/trainer_parameters"] = as_text(run.hyper_parameters)
            self.run[f"{self.base}/model_parameters"] = as_text(run.model_config)
        try:
            return self.run["sys/id"].fetch()
        except Exception:  # offline it has none
            return None

    def log(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            self.run[f"{self.base}/{name}"].append(value, step=step)

    def upload(self, directory: Path, kept: str) -> None:
        """Upload a checkpoint beside the others, or in place of the one before ("last", "best")."""
        place = self.run[f"{self.base}/checkpoints" if kept == "same" else f"{self.base}/checkpoints/{kept}"]
        place.upload_files(str(directory), wait=True)  # the directory may be deleted afterwards
        if kept != "same" and self._replaced is not None:
            place.delete_files(self._replaced)
        self._replaced = str(directory)

    def finish(self) -> None:
        if not self._is_theirs:
            self.run.stop()


_CHECKPOINTS = (None, "same", "last", "best")


class NeptuneCallback(UploadsCheckpoints):
    """Logs to Neptune; needs the package neptune.

    Args:
        api_token: the token of your account; by default NEPTUNE_API_TOKEN.
        project: the project, as "workspace/name"; by default NEPTUNE_PROJECT.
        name: the name of the run; by default `run_name`.
        base_namespace: the folder of the run that numbers go to.
        run: a run of your own, which stays open.
        log_parameters: whether the arguments and the model's configuration are logged.
        log_checkpoints: which checkpoints are uploaded: "same" (all), "last" or "best"; None uploads none.
        **neptune_run_kwargs: other arguments of `neptune.init_run`.

    >>> TrainingArguments("out", report_to="neptune")  # doctest: +SKIP
    """

    tracker = "neptune"

    def __init__(
        self,
        *,
        api_token: str | None = None,
        project: str | None = None,
        name: str | None = None,
        base_namespace: str = "finetuning",
        run: Any = None,
        log_parameters: bool = True,
        log_checkpoints: str | None = None,
        **neptune_run_kwargs: Any,
    ) -> None:
        super().__init__()
        if log_checkpoints not in _CHECKPOINTS:
            raise ConfigError(
                what=f"log_checkpoints={log_checkpoints!r} is not known",
                why='it is "same", "last", "best" or None',
                fix="pass one of these",
            )
        self._log_parameters, self._log_checkpoints = log_parameters, log_checkpoints
        given = {"api_token": api_token, "project": project, "name": name, **neptune_run_kwargs}
        self._options = {key: value for key, value in given.items() if value is not None}
        self._run, self._base = run, base_namespace

    def open(self) -> NeptuneSink:
        options = {"logs_parameters": self._log_parameters}
        return NeptuneSink(self.package(), self._run, self._base, self._options, **options)

    def uploads_checkpoints(self) -> bool:
        return self._log_checkpoints is not None

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        assert isinstance(self._sink, NeptuneSink) and self._log_checkpoints is not None
        if self._log_checkpoints == "best" and state.best_metric is None:
            note_once('log_checkpoints="best" uploads nothing: no metric_for_best_model decides which one is best')
        elif self._log_checkpoints != "best" or Path(state.best_model_checkpoint or "").name == directory.name:
            self._sink.upload(directory, self._log_checkpoints)
