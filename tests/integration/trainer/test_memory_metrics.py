"""`skip_memory_metrics=False`: the names of transformers, and numbers that are true."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import run_both


def of_memory(metrics: dict[str, Any]) -> list[str]:
    return [name for name in metrics if "_mem_" in name]


def test_the_names_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")

    def script(api: Api) -> list[Any]:
        args = api.args(max_steps=2, skip_memory_metrics=False, eval_strategy="steps", eval_steps=1)
        rows = tiny.regression_rows()
        trainer = api.Trainer(tiny.regression(), args, train_dataset=rows, eval_dataset=rows)  # logs are not compared
        results = [trainer.train().metrics, trainer.evaluate(), trainer.predict(rows).metrics]
        return [list(map(of_memory, results)), [of_memory(entry) for entry in trainer.state.log_history]]

    theirs, ours = run_both(script)
    assert ours.result == theirs.result
    assert ours.result[0][0], "there is something to compare"


def test_what_is_measured_is_so(ours: Api) -> None:
    size = 64 * 2**20
    kept: list[bytearray] = []

    class Hungry(ours.Trainer):
        def evaluation_loop(self, *args: Any, **rest: Any) -> Any:
            kept.append(bytearray(b"1") * size)
            for_a_while = bytearray(b"1") * (2 * size)
            time.sleep(0.1)  # the peak is sampled by a thread, which has to get a turn
            output = super().evaluation_loop(*args, **rest)
            del for_a_while
            return output

    args = ours.args(skip_memory_metrics=False)
    trainer = ours.trainer(tiny.regression(), args, cls=Hungry, eval_dataset=tiny.regression_rows())
    metrics = trainer.evaluate()
    assert metrics["eval_mem_cpu_alloc_delta"] == pytest.approx(size, rel=0.3)
    assert metrics["eval_mem_cpu_peaked_delta"] == pytest.approx(2 * size, rel=0.3)


def test_a_failure_does_not_stop_the_measuring_of_others(ours: Api) -> None:
    class Fails(ours.Trainer):
        def evaluation_loop(self, *args: Any, **rest: Any) -> Any:
            raise ZeroDivisionError

    args = ours.args(max_steps=1, skip_memory_metrics=False)
    rows = tiny.regression_rows()
    trainer = ours.trainer(tiny.regression(), args, cls=Fails, train_dataset=rows, eval_dataset=rows)
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        trainer.evaluate()
    assert threading.active_count() == before
    assert "train_mem_cpu_alloc_delta" in trainer.train().metrics


def test_nothing_is_measured_otherwise(ours: Api) -> None:
    trainer = ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=1)
    assert not any(of_memory(entry) for entry in trainer.state.log_history)
