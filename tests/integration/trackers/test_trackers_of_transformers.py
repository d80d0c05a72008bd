"""Trackers whose callback is transformers' own, and CodeCarbon."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ostinato
from ostinato.arguments.tracker_names import BY_TRANSFORMERS, KUBEFLOW_VARIABLE, is_installed
from ostinato.trackers.registry import find_callback_class
from tests.support import tiny

QUIET = {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1, "max_steps": 2}


def train(directory, *callbacks: Any, **arguments: Any) -> Any:
    args = ostinato.TrainingArguments(str(directory), **QUIET, **arguments)
    rows = tiny.regression_rows()
    made = ostinato.Trainer(tiny.regression(), args, train_dataset=rows, callbacks=list(callbacks))
    made.train()
    return made


def kinds(trainer: Any) -> list[str]:
    return [type(one).__name__ for one in trainer.callback_handler.callbacks]


@pytest.fixture
def in_kubeflow(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv(KUBEFLOW_VARIABLE, "https://localhost:1")  # nothing answers there


@pytest.mark.parametrize("name", BY_TRANSFORMERS)
def test_what_is_missing_is_named(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.delenv(KUBEFLOW_VARIABLE, raising=False)
    if is_installed(name):
        pytest.skip(f"the package of {name} is installed")
    expected = "leave it out" if name == "kubeflow" else f"pip install {BY_TRANSFORMERS[name][2]}"
    with pytest.raises(RuntimeError, match=expected):
        train(tmp_path, report_to=name)
    monkeypatch.setenv(KUBEFLOW_VARIABLE, "https://localhost:1")
    for module in ("arguments.tracker_names", "trackers.registry"):
        monkeypatch.setattr(f"ostinato.{module}.find_spec", lambda package: None)
    with pytest.raises(RuntimeError, match="pip install transformers"):
        find_callback_class(name)


def test_a_job_of_kubeflow_is_reported(tmp_path, in_kubeflow, monkeypatch, capsys) -> None:
    trainer = train(tmp_path / "added")
    assert trainer.args.report_to == ["kubeflow"] and "KubeflowCallback" in kinds(trainer)
    assert trainer.state.global_step == 2
    assert f"{KUBEFLOW_VARIABLE} is set" in capsys.readouterr().err
    assert kinds(train(tmp_path / "asked", report_to=["csv", "kubeflow"])).count("KubeflowCallback") == 1
    monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", "TRUE")
    assert "KubeflowCallback" not in kinds(train(tmp_path / "disabled"))


def test_azure_receives_the_numbers(tmp_path, monkeypatch) -> None:
    """The package cannot be installed beside this Python; what it would be told is what transformers' class tells."""
    pytest.importorskip("transformers")
    told: list[tuple[str, float]] = []
    run = SimpleNamespace(log=lambda name, value, description=None: told.append((name, value)))
    core = ModuleType("azureml.core.run")
    core.Run = SimpleNamespace(get_context=lambda: run)  # type: ignore[attr-defined]
    for name in ("azureml", "azureml.core", "azureml.core.run"):
        module = core if name.endswith("run") else ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    trainer = train(tmp_path, report_to="azure_ml")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [value for name, value in told if name == "loss"] == losses and len(losses) == 2


class Meter:
    """Stands for `codecarbon.EmissionsTracker`, which measures the machine for seconds."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[Any] = [options]
        meters.append(self)

    def start(self) -> None:
        self.calls.append("start")

    def flush(self) -> None:
        self.calls.append("flush")

    def stop(self) -> float:
        self.calls.append("stop")
        return 0.00123


meters: list[Meter] = []


def test_codecarbon_measures_training(tmp_path, monkeypatch, capsys) -> None:
    module = ModuleType("codecarbon")
    module.__spec__ = ModuleSpec("codecarbon", None)
    module.EmissionsTracker = Meter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "codecarbon", module)
    trainer = train(tmp_path, report_to="codecarbon")
    assert "CodeCarbonCallback" in kinds(trainer)
    assert meters[-1].calls == [{"output_dir": str(tmp_path)}, "start", "stop"]
    assert "codecarbon: 0.00123 kg" in capsys.readouterr().err
