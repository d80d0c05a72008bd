"""Why a batch failed: what is named, what is left alone, and what is noted."""

from __future__ import annotations

from typing import Any

import pytest

import ostinato
from tests.support import tiny
from tests.support.errors import raised
from tests.support.quiet_trainer import build_quiet_trainer


def trainer_of(tmp_path, data: Any, **options: Any) -> Any:
    given: dict[str, Any] = dict(
        max_steps=3, per_device_train_batch_size=4, per_device_eval_batch_size=2, save_strategy="no",
        train_sampling_strategy="sequential", train_dataset=data, eval_dataset=data,
    )  # fmt: skip
    return build_quiet_trainer(tmp_path, tiny.regression(), **given, **options)


@pytest.mark.parametrize("event", ["on_step_begin", "on_step_end", "on_prediction_step", "on_evaluate"])
def test_errors_of_callbacks_do_not_name_a_batch(event: str, tmp_path) -> None:
    def fail(self, args, state, control, **kwargs):
        raise RuntimeError("index out of range in self")

    callback = type("Fails", (ostinato.TrainerCallback,), {event: fail})()
    trainer = trainer_of(tmp_path, tiny.regression_rows(8), callbacks=[callback])
    error = raised(trainer.train if "step_" in event and "pred" not in event else trainer.evaluate)
    assert type(error) is RuntimeError
    assert getattr(error, "__notes__", []) == []


class Torn(tiny.MapDataset):
    """Its sixth row cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise RuntimeError("torn page")
        return super().__getitem__(index)


@pytest.mark.parametrize("method", ["train", "evaluate"])
def test_errors_of_reading_do_not_name_the_previous_batch(method: str, tmp_path) -> None:
    trainer = trainer_of(tmp_path, Torn(tiny.regression_rows(8)))
    error = raised(getattr(trainer, method))
    assert str(error) == "torn page"
    assert not any("float32" in note for note in getattr(error, "__notes__", []))


def test_the_current_batch_is_released(tmp_path) -> None:
    trainer = trainer_of(tmp_path, tiny.regression_rows(8))
    trainer.train()
    assert not trainer._run.step.is_computing


def test_the_right_micro_batch_is_named(tmp_path) -> None:
    calls = []

    class Fails(tiny.Regression):
        def forward(self, x, labels=None):
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("second")
            return super().forward(x, labels)

    trainer = trainer_of(tmp_path, tiny.regression_rows(8))
    trainer.model = trainer.model_wrapped = tiny.seeded(Fails)
    trainer.args.gradient_accumulation_steps = 2
    error = raised(trainer.train)
    assert "rows 4, 5, 6, 7 of the training set" in error.__notes__[0]
