"""`trainer.explain()` for every kind of model and data, and that it leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ostinato
from tests.support import tiny
from tests.support.apis import load_library
from tests.support.explain_cases import trainer

load_library("transformers")


def test_training_after_an_explanation_is_the_same(tmp_path: Path) -> None:
    def losses(*, explain_failure: bool) -> list[float]:
        ostinato.set_seed(1)
        built = trainer(
            tmp_path,
            tiny.seeded(tiny.NormedRegression),
            tiny.regression_rows(),
            arguments={"logging_steps": 1, "max_steps": 5},
        )
        if explain_failure:
            built.explain()
            built.plan()
        built.train()
        return [entry["loss"] for entry in built.state.log_history if "loss" in entry]

    assert losses(explain_failure=True) == losses(explain_failure=False)


def test_in_the_middle_of_a_run(tmp_path: Path) -> None:
    class Asking(ostinato.TrainerCallback):
        trainer: Any = None
        told: list[Any] = []

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.trainer is not None:
                self.told += [self.trainer.explain(), self.trainer.plan()]

    def losses(*, asks: bool) -> list[float]:
        ostinato.set_seed(1)
        callback = Asking()
        built = trainer(
            tmp_path,
            tiny.seeded(tiny.NormedRegression),
            tiny.regression_rows(),
            callbacks=[callback],
            arguments={"logging_steps": 1, "max_steps": 4, "bf16": True},
        )
        callback.trainer = built if asks else None
        built.train()
        return [entry["loss"] for entry in built.state.log_history if "loss" in entry]

    assert losses(asks=True) == losses(asks=False)
    assert len(Asking.told) == 8
    assert Asking.told[0].findings == ()
    assert Asking.told[0].call.precision == "float32 computed in bf16"
