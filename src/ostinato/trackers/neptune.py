"""Log to Neptune."""

from __future__ import annotations

from typing import Any

from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink


class NeptuneSink(Sink):
    """Logs to a run of Neptune, below `base_namespace`; a `run` of the user's stays open."""

    def __init__(self, module: Any, run: Any, base_namespace: str, options: dict[str, Any]) -> None:
        self.module, self.run, self.base, self.options = module, run, base_namespace, options
        self._is_theirs = run is not None

    def start(self, run: RunInfo) -> str | None:
        if not self._is_theirs:
            options = dict(self.options)
            if run.run_id is not None:
                options["with_id"] = run.run_id
            elif run.trial or run.name:
                options.setdefault("name", run.trial or run.name)
            self.run = self.module.init_run(**options)
        if run.run_id is None:
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

    def finish(self) -> None:
        if not self._is_theirs:
            self.run.stop()


class NeptuneCallback(TrackerCallback):
    """Logs to Neptune; needs the package neptune. Other arguments go to `neptune.init_run`."""

    tracker = "neptune"

    def __init__(
        self,
        *,
        api_token: str | None = None,
        project: str | None = None,
        name: str | None = None,
        base_namespace: str = "finetuning",
        run: Any = None,
        **neptune_run_kwargs: Any,
    ) -> None:
        super().__init__()
        given = {"api_token": api_token, "project": project, "name": name, **neptune_run_kwargs}
        self._options = {key: value for key, value in given.items() if value is not None}
        self._run, self._base = run, base_namespace

    def open(self) -> NeptuneSink:
        return NeptuneSink(self.package(), self._run, self._base, self._options)
