"""What wandb, mlflow and trackio are asked for: variables and arguments, told by stand-ins of their packages."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ostinato
from ostinato.arguments.tracker_names import is_installed
from ostinato.core.state import TrainerState
from ostinato.trackers.mlflow import MlflowSink
from ostinato.trackers.registry import find_callback_class
from ostinato.trackers.sink import RunInfo
from ostinato.trackers.trackio import TrackioSink
from ostinato.trackers.wandb import WandbCallback, WandbSink
from ostinato.trackers.wandb_files import read_entries


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_PROJECT", "WANDB_WATCH", "WANDB_DISABLED", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def run_info(**given: Any) -> RunInfo:
    args = SimpleNamespace(
        project="huggingface", trackio_space_id=None, trackio_bucket_id=None, logging_steps=5, **given.pop("args", {})
    )
    content = {"name": "first", "output_dir": "out", "hyper_parameters": {"lr": 0.1}, "model_config": {"_name": "x"}}
    return RunInfo(**{**content, "args": args, **given})


class FakeWandb:
    def __init__(self) -> None:
        self.run, self.asked = None, {}

    def init(self, **options: Any) -> Any:
        self.asked = options
        self.watched = None

        class Config(dict):
            def update(self, content: Any, allow_val_change: bool) -> None:
                super().update(content)

        self.run = SimpleNamespace(
            id=options.get("id") or "fresh", config=Config(), define_metric=lambda *args, **kwargs: None,
            watch=lambda model, log, log_freq: setattr(self, "watched", (log, log_freq)),
            offline=False, resumed="id" in options, summary={"train/global_step": 7}, log=lambda row: None,
        )  # fmt: skip
        return self.run


def test_a_stand_in_of_a_package_counts_as_installed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "swanlab", ModuleType("swanlab"))
    assert is_installed("swanlab")
    monkeypatch.setitem(sys.modules, "swanlab", None)  # type: ignore[arg-type]  # it cannot be imported
    assert not is_installed("swanlab")


def test_wandb_takes_name_and_project(monkeypatch) -> None:
    module = FakeWandb()
    assert WandbSink(module).start(run_info()) == "fresh"
    assert module.asked == {"project": "huggingface", "name": "first"}
    assert module.run.config == {"_name": "x", "lr": 0.1}
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    module = FakeWandb()
    WandbSink(module).start(run_info(name=None))  # then wandb reads WANDB_NAME
    assert module.asked == {"project": "mine"}


def test_wandb_continues_by_id_from_the_last_logged_step() -> None:
    module = FakeWandb()
    sink = WandbSink(module)
    again = run_info(run_id="abc", step=4)
    assert sink.start(again) == "abc"
    assert module.asked["id"] == "abc" and module.asked["resume"] == "allow"
    assert sink.held(again).complete_before == 8


def test_wandb_uses_a_run_that_is_open_and_watches_when_asked(monkeypatch) -> None:
    module = FakeWandb()
    module.init(id="theirs")
    module.asked = {}
    monkeypatch.setenv("WANDB_WATCH", "gradients")
    assert WandbSink(module).start(run_info()) == "theirs"
    assert module.asked == {} and module.watched == ("gradients", 100)


def test_wandb_can_be_switched_off(monkeypatch, tmp_path) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DISABLED", "true")
    callback = WandbCallback()
    args, state, control = ostinato.TrainingArguments(str(tmp_path), use_cpu=True), ostinato.TrainerState(), None
    callback.on_train_begin(args, state, control, model=None)
    callback.on_log(args, state, control, logs={"loss": 1.0})
    callback.on_train_end(args, state, control)
    assert callback.run_id is None


def test_a_torn_wandb_file_is_read_up_to_the_tear(tmp_path) -> None:
    def piece(content: bytes, kind: int) -> bytes:
        return b"\0\0\0\0" + len(content).to_bytes(2, "little") + bytes([kind]) + content

    block = 32768
    first = b":W&B\0\0\0" + piece(b"one", 1)
    half = block - len(first) - 7
    path = tmp_path / "run.wandb"
    path.write_bytes(first + piece(b"x" * half, 2) + piece(b"y", 4) + piece(b"torn away", 1)[:-4])
    assert list(read_entries(path)) == [b"one", b"x" * half + b"y"]


class FakeMlflow:
    """Keeps what a service would."""

    def __init__(self, active: str | None = None) -> None:
        self.asked: dict[str, Any] = {}
        self.params: dict[str, str] = {}
        self.ended = 0
        self.active = active and self._run(active)
        self.entities = SimpleNamespace(Param=lambda name, value: (name, value), Metric=lambda *point: point)
        self.utils = SimpleNamespace(
            validation=SimpleNamespace(MAX_PARAM_VAL_LENGTH=20),
            time=SimpleNamespace(get_current_time_millis=lambda: 0),
        )
        self.MlflowClient = lambda: SimpleNamespace(log_batch=self.log_batch)
        self.points: list[tuple] = []

    @staticmethod
    def _run(run_id: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def active_run(self) -> Any:
        return self.active

    def start_run(self, **options: Any) -> Any:
        self.asked.update(options)
        self.active = self._run(options.get("run_id") or "fresh")
        return self.active

    def set_experiment(self, name: str) -> None:
        self.asked["experiment"] = name

    def set_tags(self, tags: dict[str, str]) -> None:
        self.asked["tags"] = tags

    def end_run(self) -> None:
        self.ended += 1

    def log_batch(self, run_id: str, params: Any = (), metrics: Any = ()) -> None:
        self.params.update(params)
        self.points.extend(metrics)


def test_mlflow_reads_its_variables(monkeypatch, capsys) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    monkeypatch.setenv("MLFLOW_TAGS", '{"team": "a"}')
    monkeypatch.setenv("MLFLOW_FLATTEN_PARAMS", "1")
    monkeypatch.setenv("MLFLOW_MAX_LOG_PARAMS", "3")
    module = FakeMlflow()
    sink = MlflowSink(module)
    content = {"a": {"b": 1, "c": 2}, "long": "x" * 21, "more": 4}
    assert sink.start(run_info(hyper_parameters=content, model_config={})) == "fresh"
    assert module.asked == {"experiment": "digits", "tags": {"team": "a"}, "nested": False, "run_name": "first"}
    assert module.params == {"a.b": "1", "a.c": "2"}
    assert "left out: long" in capsys.readouterr().err
    sink.log({"eval/": 1.0, "train/a=b": 2.0}, 3)
    assert [point[0] for point in module.points] == ["eval", "train/a_b"]
    sink.finish()
    assert module.ended == 1


def test_mlflow_continues_a_run_and_leaves_the_users_open(monkeypatch) -> None:
    module = FakeMlflow()
    assert MlflowSink(module).start(run_info(run_id="abc", step=4)) == "abc"
    assert module.params == {}  # they are there, and mlflow does not let them change
    monkeypatch.setenv("MLFLOW_RUN_ID", "from outside")
    assert MlflowSink(FakeMlflow()).start(run_info()) == "from outside"
    assert MlflowSink(FakeMlflow()).start(run_info(run_id="abc", step=4)) == "from outside"
    theirs = FakeMlflow(active="theirs")
    sink = MlflowSink(theirs)
    assert sink.start(run_info()) == "theirs"
    sink.finish()
    assert theirs.ended == 0


def test_trackio_receives_project_name_and_space() -> None:
    asked: dict[str, Any] = {}

    def init(**options: Any) -> Any:
        asked.update(options)
        return SimpleNamespace(name=options["name"])

    info = run_info(args={})
    info.args.project, info.args.trackio_space_id = "digits", "me/space"
    assert TrackioSink(SimpleNamespace(init=init)).start(info) == "first"
    assert (asked["project"], asked["space_id"], asked["resume"]) == ("digits", "me/space", "never")
    assert asked["config"] == {"name": "x", "lr": 0.1}
    TrackioSink(SimpleNamespace(init=init)).start(run_info(run_id="first", step=2))
    assert asked["resume"] == "allow"


TRACKERS = "clearml comet_ml dvclive mlflow neptune swanlab tensorboard trackio wandb"


@pytest.mark.parametrize("name", TRACKERS.split())
def test_arguments_may_be_a_plain_object(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of client libraries call `setup` with no more than what a tracker reads."""
    runs: list[RunInfo] = []
    monkeypatch.setattr("ostinato.trackers.base.is_installed", lambda tracker: True)
    callback = find_callback_class(name)()
    monkeypatch.setattr(callback, "open", lambda: SimpleNamespace(start=runs.append))
    args = SimpleNamespace(to_dict=lambda: {"learning_rate": 0.1, "ostinato_packing": True}, run_name="mine")
    callback.setup(args, TrainerState(), None)
    assert runs[0].name == "mine"
    assert runs[0].hyper_parameters["learning_rate"] == 0.1
