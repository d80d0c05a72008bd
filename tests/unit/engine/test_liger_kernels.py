"""`use_liger_kernel`: Liger's function is called with the model itself and with the configuration."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from torch import nn

from ostinato import TrainingArguments
from ostinato.arguments.settings import RunSettings
from ostinato.core.errors import MissingPackageError
from ostinato.core.notices import forget_notices
from ostinato.engine.liger_kernels import apply_liger_kernels


class PreTrainedModel(nn.Module):
    """The name is what counts."""


class Adapter(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def get_base_model(self) -> nn.Module:
        return self.base


def settings(**arguments: Any) -> RunSettings:
    return RunSettings.of(TrainingArguments("out", use_cpu=True, report_to=[], **arguments))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = []
    module: Any = types.ModuleType("liger_kernel.transformers")
    module._apply_liger_kernel_to_instance = lambda **given: recorded.append(given)
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    return recorded


def test_nothing_happens_unless_it_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    apply_liger_kernels(PreTrainedModel(), settings())


def test_the_model_and_the_configuration_are_passed_on(calls: list[dict[str, Any]]) -> None:
    model = PreTrainedModel()
    apply_liger_kernels(model, settings(use_liger_kernel=True))
    apply_liger_kernels(model, settings(use_liger_kernel=True, liger_kernel_config={"rope": False, "swiglu": True}))
    assert calls == [{"model": model}, {"model": model, "rope": False, "swiglu": True}]


def test_the_model_inside_of_adapters_is_changed(calls: list[dict[str, Any]]) -> None:
    model = PreTrainedModel()
    apply_liger_kernels(Adapter(model), settings(use_liger_kernel=True))
    assert calls == [{"model": model}]


def test_a_plain_module_is_left_alone_and_mentioned(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    forget_notices()
    apply_liger_kernels(nn.Linear(2, 2), settings(use_liger_kernel=True))
    assert calls == []
    assert "use_liger_kernel has no effect: Linear is not a model of transformers" in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(MissingPackageError) as error:
        apply_liger_kernels(PreTrainedModel(), settings(use_liger_kernel=True))
    assert error.value.what == "use_liger_kernel=True needs the package liger_kernel"
    assert error.value.fix == "pip install liger-kernel"
