"""What a resumed run reports at its end are the totals of the whole run, not of its last leg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ostinato
from tests.support import tiny
from tests.support.apis import Api, guest

BASE: dict[str, Any] = dict(
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=9,
    logging_steps=4,
    save_strategy="steps",
    save_steps=1,
    include_num_input_tokens_seen="non_padding",
)


class StopsAt(ostinato.TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs) -> None:
        control.should_training_stop |= state.global_step == self.step


def totals(folder: Path, *, until: int = 99, go_on: bool = False, **rest: Any) -> dict[str, Any]:
    api = Api("ostinato", folder)
    api.set_seed(42)
    trainer = api.trainer(
        tiny.bert(),
        api.args(**{**BASE, **rest}),
        train_dataset=tiny.ragged_classification_rows(),
        processing_class=tiny.tokenizer(),
        callbacks=[StopsAt(until)],
    )
    output = trainer.train(resume_from_checkpoint=True if go_on else None)
    last, run, state = trainer.state.log_history[-1], trainer._run, trainer.state
    return {
        "train_loss": (output.training_loss, output.metrics["train_loss"], last["train_loss"]),
        "flos": (output.metrics["total_flos"], state.total_flos, last["total_flos"]),
        "tokens": (state.num_input_tokens_seen, last["num_input_tokens_seen"]),
        "rows and steps, by which speeds are reckoned": (run.plan.rows, state.max_steps, output.global_step),
        "epoch": (output.metrics["epoch"], last["epoch"]),
        "keys": sorted(output.metrics),
    }


@pytest.fixture(autouse=True)
def transformers() -> Any:
    pytest.importorskip("transformers")
    with guest("transformers"):
        yield


@pytest.mark.parametrize(
    "changes", [{}, {"max_steps": -1, "num_train_epochs": 1.5}, {"logging_strategy": "no"}], ids=str
)
def test_stopped_twice_and_never(changes: dict[str, Any], tmp_path: Path) -> None:
    whole = totals(tmp_path / "a", **changes)
    totals(tmp_path / "b", until=2, **changes)
    totals(tmp_path / "b", until=5, go_on=True, **changes)
    assert totals(tmp_path / "b", go_on=True, **changes) == whole
    assert whole["flos"][0] > 0 and whole["tokens"][0] > 0 and whole["train_loss"][0] > 0
    assert len(set(whole["train_loss"])) == len(set(whole["flos"])) == len(set(whole["tokens"])) == 1


def test_a_finished_run_that_is_resumed_reports_the_same(tmp_path: Path) -> None:
    whole = totals(tmp_path)
    assert totals(tmp_path, go_on=True) == whole


def test_speeds_are_of_what_was_done_in_the_time(tmp_path: Path) -> None:
    """A resumed run did the rest only, and one that was stopped did not do all that was planned."""
    for until, done in ((6, 6), (99, 3)):
        api = Api("ostinato", tmp_path)
        trainer = api.trainer(
            tiny.bert(),
            api.args(**BASE),
            train_dataset=tiny.ragged_classification_rows(),
            processing_class=tiny.tokenizer(),
            callbacks=[StopsAt(until)],
        )
        metrics = trainer.train(resume_from_checkpoint=done == 3).metrics
        steps = metrics["train_steps_per_second"] * metrics["train_runtime"]
        rows = metrics["train_samples_per_second"] * metrics["train_runtime"]
        assert steps == pytest.approx(done, rel=0.02)
        assert rows == pytest.approx(4 * done, rel=0.02)
