"""Where the time goes: planted delays are found under their own name."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ostinato.core.timing import compute_shares
from tests.support import tiny
from tests.support.apis import Api


class Rows:
    """A data set that makes its readers wait."""

    def __init__(self, delay: float) -> None:
        self.rows, self.delay = tiny.regression_rows(), delay

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.delay)
        return self.rows[index]


def test_delays_are_booked_where_they_belong(ours: Api) -> None:
    class Slow(ours.Trainer):
        def evaluation_loop(self, *args: Any, **rest: Any) -> Any:
            time.sleep(0.2)
            return super().evaluation_loop(*args, **rest)

        def _save_checkpoint(self, *args: Any, **rest: Any) -> Any:
            time.sleep(0.1)
            return super()._save_checkpoint(*args, **rest)

    args = ours.args(max_steps=4, per_device_train_batch_size=2, eval_strategy="steps", eval_steps=2,
                     save_strategy="steps", save_steps=2)  # fmt: skip
    data = Rows(0.02)
    trainer = ours.trainer(tiny.regression(), args, cls=Slow, train_dataset=data, eval_dataset=data.rows)
    trainer.train()
    spent = trainer._run.ledger.seconds()
    assert spent["data"] >= 8 * 0.02
    assert spent["evaluation"] >= 0.4
    assert spent["saving"] >= 0.2
    assert sum(spent.values()) == pytest.approx(time.perf_counter() - trainer._run.ledger.began, rel=0.05)
    assert sum(compute_shares(spent).values()) == pytest.approx(1)


def test_tokens_per_second_are_of_training_time(ours: Api) -> None:
    """A second of evaluating does not slow training down."""

    class Slow(ours.Trainer):
        def evaluation_loop(self, *args: Any, **rest: Any) -> Any:
            time.sleep(0.5)
            return super().evaluation_loop(*args, **rest)

    pytest.importorskip("transformers")
    args = ours.args(
        max_steps=4, eval_strategy="steps", eval_steps=1, include_num_input_tokens_seen="all",
        per_device_train_batch_size=2,
    )  # fmt: skip
    rows = tiny.classification_rows()
    trainer = ours.trainer(tiny.bert(), args, cls=Slow, train_dataset=rows, eval_dataset=rows[:2])
    trainer.train()
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    seconds = last["num_input_tokens_seen"] / last["train_tokens_per_second"]
    assert last["train_runtime"] > 1.5
    assert seconds < last["train_runtime"] - 1.4
