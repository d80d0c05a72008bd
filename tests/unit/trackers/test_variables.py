"""Every variable and parameter of transformers' tracker callbacks has an effect here, or a line says not."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

import ostinato
from ostinato.arguments import tracker_names
from ostinato.core.notices import forget_notices
from ostinato.trackers import clearml, comet, dvclive, neptune, swanlab, trackio
from ostinato.trackers.registry import find_callback_class
from ostinato.trackers.sink import RunInfo
from tests.support import tiny


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracker_names.KNOWN:
        for variable in {**find_callback_class(name).variables, **find_callback_class(name).ineffective_variables}:
            monkeypatch.delenv(variable, raising=False)
    forget_notices()


# ---- what transformers reads ---------------------------------------------------------------------------------------


def variables_read_by(kind: type) -> set[str]:
    """The names of environment variables in the code of a class, outside of its docstrings."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    read = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Call) and "env" in ast.unparse(node.func).lower())
        or (isinstance(node, ast.Subscript) and "environ" in ast.unparse(node.value))
    ]
    words = [
        word.value
        for node in read
        for word in ast.walk(node)
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]
    return {word for word in words if re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", word)}


def stock_callbacks() -> dict[str, type]:
    pytest.importorskip("transformers")
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    return dict(INTEGRATION_TO_CALLBACK)


def test_every_tracker_of_transformers_is_known() -> None:
    assert set(stock_callbacks()) == (set(tracker_names.KNOWN) - {"csv", "jsonl"}) | set(tracker_names.BY_TRANSFORMERS)
    for name, (callback, _, _) in tracker_names.BY_TRANSFORMERS.items():
        assert stock_callbacks()[name].__name__ == callback


def test_every_variable_is_declared() -> None:
    read = {name: variables_read_by(kind) for name, kind in stock_callbacks().items()}
    assert {"WANDB_LOG_MODEL", "WANDB_WATCH"} <= read["wandb"] and "HF_DVCLIVE_LOG_MODEL" in read["dvclive"]
    for name, variables in read.items():
        if name in tracker_names.KNOWN:
            ours = find_callback_class(name)
            assert variables <= ours.variables.keys() | ours.ineffective_variables.keys(), name


def test_every_parameter_of_a_callback_is_accepted() -> None:
    for name, kind in stock_callbacks().items():
        if name in tracker_names.KNOWN:
            ours = inspect.signature(find_callback_class(name).__init__).parameters
            assert inspect.signature(kind.__init__).parameters.keys() <= ours.keys(), name


# ---- what each decides here ----------------------------------------------------------------------------------------


class Recorded:
    """Stands for a tracker's package: every call is written down, and returns another one."""

    def __init__(self, path: str, calls: list[tuple[str, tuple, dict]], **values: Any) -> None:
        self.__dict__.update(values)
        self._path, self._calls = path, calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Recorded(f"{self._path}.{name}".lstrip("."), self._calls)

    def __getitem__(self, name: str) -> Any:
        return Recorded(f"{self._path}[{name}]", self._calls)

    def __setitem__(self, name: str, value: Any) -> None:
        self._calls.append((f"{self._path}[{name}]", (value,), {}))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls.append((self._path, args, kwargs))
        return Recorded(f"{self._path}()", self._calls)


@pytest.fixture
def calls() -> list[tuple[str, tuple, dict]]:
    return []


def package(calls: list, **values: Any) -> Recorded:
    return Recorded("", calls, **values)


def info(**given: Any) -> RunInfo:
    args = SimpleNamespace(project="p", **given.pop("args", {}))
    content = {"name": "first", "output_dir": "out", "hyper_parameters": {"lr": 0.1}, "model_config": {}}
    return RunInfo(**{**content, "args": args, **given})


def callback_of(kind: type, sink: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A callback whose run is open, whether or not the package is installed."""
    monkeypatch.setattr("ostinato.trackers.base.is_installed", lambda name: True)
    made = kind(**options)
    made._sink = sink
    return made


def arguments(tmp_path, **given: Any) -> Any:
    return ostinato.TrainingArguments(str(tmp_path), use_cpu=True, **given)


def sent(calls: list, method: str) -> list[tuple[tuple, dict]]:
    return [(args, options) for path, args, options in calls if path.endswith(method)]


@pytest.mark.parametrize(("value", "expected"), [("true", ["checkpoint-2", "checkpoint-4"]), ("false", [])])
def test_clearml_uploads_checkpoints(tmp_path, monkeypatch, calls, value: str, expected: list[str]) -> None:
    sink = clearml.ClearMLSink(package(calls))
    sink.task = package(calls)
    callback = callback_of(clearml.ClearMLCallback, sink, monkeypatch)
    monkeypatch.setenv("CLEARML_LOG_MODEL", value)
    for step in (2, 4):
        callback.on_save(arguments(tmp_path, save_total_limit=1), ostinato.TrainerState(global_step=step), None)
    assert [options["target_filename"] for _, options in sent(calls, "update_weights_package")] == expected
    assert len(sent(calls, "Model.remove")) == (1 if expected else 0)


def test_clearml_names_a_task(monkeypatch, calls) -> None:
    module = package(calls, Task=SimpleNamespace(current_task=lambda: None, init=package(calls).init))
    clearml.ClearMLSink(module).start(info())
    monkeypatch.setenv("CLEARML_TASK", "mine")
    clearml.ClearMLSink(module).start(info())
    assert [options["task_name"] for _, options in sent(calls, "init")] == ["first", "mine"]


@pytest.mark.parametrize("value", ["TRUE", "FALSE"])
def test_comet_uploads_the_files(tmp_path, monkeypatch, calls, value: str) -> None:
    sink = comet.CometSink(package(calls))
    sink.experiment = package(calls)
    monkeypatch.setenv("COMET_LOG_ASSETS", value)
    callback = callback_of(comet.CometCallback, sink, monkeypatch)
    callback.on_train_end(arguments(tmp_path), ostinato.TrainerState(global_step=3), None)
    folders = [args[0] for args, _ in sent(calls, "log_asset_folder")]
    assert folders == ([str(tmp_path)] if value == "TRUE" else [])
    assert [path for path, _, _ in calls][-1] == "end"


def test_comet_reads_its_mode(tmp_path, monkeypatch, calls, capsys) -> None:
    monkeypatch.setenv("COMET_MODE", "CREATE")
    comet.CometSink(package(calls)).start(info())
    assert calls[0] == ("start", (), {"mode": "create"})
    monkeypatch.setenv("COMET_MODE", "sometimes")
    callback = callback_of(comet.CometCallback, None, monkeypatch)
    callback.on_train_begin(arguments(tmp_path), ostinato.TrainerState(), None)
    assert not callback._initialized
    assert "COMET_MODE=sometimes is none of get_or_create, get, create" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "option", "best", "logged"),
    [
        ("1", None, False, ["last"]),
        ("true", None, True, ["best"]),
        ("all", None, False, [""]),
        ("", True, False, ["last"]),
        ("all", False, False, []),
        ("no", None, False, []),
    ],
)
def test_dvclive_logs_models(tmp_path, monkeypatch, calls, value, option, best, logged) -> None:
    monkeypatch.setenv("HF_DVCLIVE_LOG_MODEL", value)
    sink = dvclive.DvcliveSink(None, package(calls))
    callback = callback_of(dvclive.DVCLiveCallback, sink, monkeypatch, log_model=option)
    steps = {"save_strategy": "steps", "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2} if best else {}
    args, state = arguments(tmp_path, load_best_model_at_end=best, **steps), ostinato.TrainerState(global_step=2)
    callback.on_save(args, state, None)
    callback.on_train_end(args, state, None, model=tiny.regression())
    assert [one[0] for one, _ in sent(calls, "log_artifact")] == [str(tmp_path / name) for name in logged]
    if logged in (["last"], ["best"]):
        assert (tmp_path / logged[0] / "model.safetensors").exists()


def test_swanlab_continues_the_run_that_is_named(monkeypatch, calls, capsys) -> None:
    module = package(calls, get_run=lambda: None)
    swanlab.SwanLabSink(module).start(info())
    swanlab.SwanLabSink(module).start(info(run_id="saved", step=2))
    monkeypatch.setenv("SWANLAB_RUN_ID", "mine")
    swanlab.SwanLabSink(module).start(info())
    monkeypatch.setenv("SWANLAB_RESUME", "must")
    swanlab.SwanLabSink(module).start(info(run_id="saved", step=2))
    made = [(options.get("id"), options.get("resume")) for _, options in sent(calls, "init")]
    assert made == [(None, None), ("saved", "allow"), ("mine", None), ("mine", "must")]
    assert "SWANLAB_RUN_ID is set: the run mine continues, and not saved" in capsys.readouterr().err


def test_a_variable_without_effect_is_told(tmp_path, monkeypatch, calls, capsys) -> None:
    callback = callback_of(swanlab.SwanLabCallback, None, monkeypatch)
    monkeypatch.setattr(callback, "package", lambda: package(calls))
    monkeypatch.setenv("SWANLAB_LOG_MODEL", "true")
    callback.on_train_begin(arguments(tmp_path), ostinato.TrainerState(), None)
    assert capsys.readouterr().err.count("SWANLAB_LOG_MODEL has no effect") == 1


@pytest.mark.parametrize(
    ("kept", "uploaded", "deleted"),
    [(None, 0, 0), ("same", 2, 0), ("last", 2, 1), ("best", 1, 0)],
)
def test_neptune_uploads_checkpoints(tmp_path, monkeypatch, calls, kept, uploaded: int, deleted: int) -> None:
    sink = neptune.NeptuneSink(package(calls), package(calls), "finetuning", {})
    callback = callback_of(neptune.NeptuneCallback, sink, monkeypatch, log_checkpoints=kept)
    for step in (2, 4):
        best = ostinato.TrainerState(
            global_step=step, best_metric=1.0, best_model_checkpoint=str(tmp_path / "checkpoint-2")
        )
        callback.on_save(arguments(tmp_path), best, None)
    assert (len(sent(calls, "upload_files")), len(sent(calls, "delete_files"))) == (uploaded, deleted)


def test_neptune_says_what_it_cannot_do(tmp_path, monkeypatch, calls, capsys) -> None:
    with pytest.raises(ValueError, match="log_checkpoints='every' is not known"):
        callback_of(neptune.NeptuneCallback, None, monkeypatch, log_checkpoints="every")
    sink = neptune.NeptuneSink(package(calls), package(calls), "finetuning", {})
    callback = callback_of(neptune.NeptuneCallback, sink, monkeypatch, log_checkpoints="best")
    callback.on_save(arguments(tmp_path), ostinato.TrainerState(global_step=2), None)
    assert not calls and "uploads nothing" in capsys.readouterr().err


def test_neptune_leaves_parameters_out(calls) -> None:
    for logs, count in ((True, 2), (False, 0)):
        calls.clear()
        neptune.NeptuneSink(package(calls), None, "base", {}, logs_parameters=logs).start(info())
        assert len([path for path, _, _ in calls if path.endswith("parameters]")]) == count


@pytest.mark.parametrize(
    ("space", "static", "frozen"),
    [
        (None, None, None),
        ("me/space", None, "p-static-"),
        ("me/space", "me/copy", "me/copy"),
        ("me/space", False, None),
    ],
)
def test_trackio_publishes_a_space(calls, space, static, frozen) -> None:
    sink = trackio.TrackioSink(package(calls))
    given = {"trackio_space_id": space, "trackio_static_space_id": static, "hub_private_repo": True}
    if space is None:
        sink._choose_name = lambda name: name
    sink.start(info(args=given))
    sink.publish()
    assert sent(calls, "init")[0][1]["private"] is True
    made = [options for _, options in sent(calls, "freeze")]
    assert len(made) == (0 if frozen is None else 1)
    if frozen is not None:
        assert made[0]["new_space_id"].startswith(frozen)
        assert (made[0]["space_id"], made[0]["project"], made[0]["private"]) == ("me/space", "p", True)


def test_trackio_says_that_there_is_nothing_to_publish(calls, capsys) -> None:
    sink = trackio.TrackioSink(package(calls))
    sink._choose_name = lambda name: name
    sink.start(info(args={"trackio_space_id": None, "trackio_static_space_id": "me/copy"}))
    assert "trackio_static_space_id='me/copy' has no effect" in capsys.readouterr().err
