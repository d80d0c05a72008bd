"""Log to DVCLive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .base import TrackerCallback
from .sink import Held, Numbers, RunInfo, Sink


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


class DVCLiveCallback(TrackerCallback):
    """Logs to DVCLive; needs the package dvclive. `live` is one of your own; other arguments make one."""

    tracker = "dvclive"

    def __init__(self, live: Any = None, **kwargs: Any) -> None:
        super().__init__()
        self._live, self._options = live, kwargs

    def open(self) -> DvcliveSink:
        return DvcliveSink(self.package(), self._live, **self._options)
