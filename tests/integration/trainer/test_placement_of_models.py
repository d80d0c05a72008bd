"""What a trainer moves to its device, and what it leaves where it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ostinato import Trainer, TrainingArguments
from ostinato.core import notices
from ostinato.core.world import World
from ostinato.strategies.single import SingleDevice
from tests.support import tiny

ELSEWHERE = torch.device("meta")  # a device that every machine has


def placed_by_map(device_map: dict[str, Any]) -> Any:
    model = tiny.regression()
    model.hf_device_map = device_map
    return model


class NotPlacing(TrainingArguments):
    @property
    def place_model_on_device(self) -> bool:
        return False


class NotPlacingTrainer(Trainer):
    place_model_on_device = False  # type: ignore[assignment]


class PropertyTrainer(Trainer):
    @property
    def place_model_on_device(self) -> bool:
        return False


class AssigningTrainer(Trainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.place_model_on_device = False
        super().__init__(*args, **kwargs)


def make(tmp_path, model: Any = None, cls: type = Trainer, args: type = TrainingArguments, **keywords: Any) -> Any:
    arguments = args(str(tmp_path), max_steps=2, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True)
    model = tiny.regression() if model is None else model
    rows = tiny.regression_rows()
    return cls(model, arguments, train_dataset=rows, eval_dataset=rows, **keywords)


def devices(model: Any) -> set[str]:
    return {parameter.device.type for parameter in model.parameters()}


STAYS = {
    "a map of one device": {"model": lambda: placed_by_map({"": 0})},
    "a map of several": {"model": lambda: placed_by_map({"inner": 0, "outer": "cpu"})},
    "arguments": {"args": NotPlacing},
    "class attribute": {"cls": NotPlacingTrainer},
    "property": {"cls": PropertyTrainer},
    "attribute": {"cls": AssigningTrainer},
}


@pytest.mark.parametrize("case", STAYS)
def test_a_model_that_stays_is_trained_where_it_is(
    case: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notices.forget_notices()
    usual = make(tmp_path)
    usual.train()
    assert "training on cpu" not in capsys.readouterr().err
    monkeypatch.setattr(World, "device", lambda self, use_cpu=False: ELSEWHERE)
    keywords = dict(STAYS[case])
    model = keywords.pop("model", tiny.regression)()
    trainer = make(tmp_path, model, **keywords)
    trainer.train()
    trainer.evaluate()
    assert devices(model) == {"cpu"} and trainer.strategy.device.type == trainer.accelerator.device.type == "cpu"
    assert all(map(torch.equal, model.parameters(), usual.model.parameters()))
    said = "training on cpu, where the model was put and has to stay, and not on meta"
    assert capsys.readouterr().err.count(said) == 1


def test_a_model_is_moved(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "device", lambda self, use_cpu=False: ELSEWHERE)
    trainer = make(tmp_path)
    assert devices(trainer.model) == {"meta"} and trainer.place_model_on_device is True


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_a_script_puts_in_later_is_moved(training: bool, tmp_path) -> None:
    trainer = make(tmp_path, strategy=SingleDevice(ELSEWHERE))
    trainer.model = tiny.regression()
    assert devices(trainer._wrap_model(trainer.model, training=training)) == {"meta"}
    trainer.model = placed_by_map({"": "cpu"})
    assert devices(trainer._wrap_model(trainer.model, training=training)) == {"cpu"}
    trainer.place_model_on_device = False
    trainer.model = tiny.regression()
    assert devices(trainer._wrap_model(trainer.model, training=training)) == {"cpu"}


@pytest.mark.parametrize("evaluation_mode", [True, False])
def test_models_that_a_script_prepares(evaluation_mode: bool, tmp_path) -> None:
    accelerator = make(tmp_path, strategy=SingleDevice(ELSEWHERE)).accelerator
    prepare = accelerator.prepare_model
    assert devices(prepare(tiny.regression(), evaluation_mode=evaluation_mode)) == {"meta"}
    assert devices(prepare(placed_by_map({"": "cpu"}), evaluation_mode=evaluation_mode)) == {"cpu"}
    assert devices(prepare(tiny.regression(), device_placement=False, evaluation_mode=evaluation_mode)) == {"cpu"}
