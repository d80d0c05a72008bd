"""A resumed run cannot be told from one that was never interrupted."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostinato
from ostinato.core.state import ExportableState
from tests.support import tiny
from tests.support.apis import Api
from tests.support.records import assert_same

BASE = dict(
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    per_device_eval_batch_size=4,
    max_steps=10,
    logging_steps=3,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="steps",
    save_steps=5,
    metric_for_best_model="loss",
    warmup_steps=3,
    write_report=False,
)


class Counter(ostinato.TrainerCallback, ExportableState):
    """A callback that remembers what it has seen."""

    def __init__(self, offset: int = 0) -> None:
        self.offset, self.steps, self.losses = offset, offset, []

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps += 1

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        self.losses.append(logs.get("loss"))

    def state(self) -> dict[str, Any]:
        return {"args": {"offset": self.offset}, "attributes": {"steps": self.steps, "losses": list(self.losses)}}


def in_order(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The file of a checkpoint sorts its keys, as transformers' does."""
    return [dict(sorted(entry.items())) for entry in history]


def regression() -> torch.nn.Module:
    return tiny.regression(dropout=0.3)


def run(
    folder: Path, checkpoint: str | bool | None = None, *, rows=24, build=regression, **rest: Any
) -> dict[str, Any]:
    """Train, from the start or from a checkpoint, and return all that can be compared."""
    api = Api("ostinato", folder)
    api.set_seed(42)
    data = tiny.regression_rows(rows) if isinstance(rows, int) else rows
    trainer_options = {name: rest.pop(name) for name in ("data_collator", "compute_loss_func") if name in rest}
    counter, early = Counter(), api.EarlyStoppingCallback(early_stopping_patience=50, early_stopping_threshold=0.1)
    trainer = api.trainer(
        build(),
        api.args(**{**BASE, **rest}),
        train_dataset=data,
        eval_dataset=data[:6],
        callbacks=[early, counter],
        **trainer_options,
    )
    if checkpoint is not None and checkpoint is not True:
        checkpoint = str(folder / checkpoint)
    output = trainer.train(resume_from_checkpoint=checkpoint)
    return {
        "weights": {name: value.clone() for name, value in trainer.model.state_dict().items()},
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": {name: value for name, value in trainer.lr_scheduler.state_dict().items() if name != "lr_lambdas"},
        "log_history": in_order(trainer.state.log_history),
        "train_loss": output.training_loss,
        "metrics": output.metrics,
        "best": (trainer.state.best_metric, trainer.state.best_global_step),
        "place": (trainer.state.global_step, trainer.state.epoch, trainer.state.total_flos),
        "early stopping": early.early_stopping_patience_counter,
        "counter": (counter.steps, counter.losses),
        "random": (torch.get_rng_state(), random.random(), float(np.random.rand())),
    }


def check(folder: Path, checkpoint: str | bool = "checkpoint-5", **rest: Any) -> tuple[dict, dict]:
    whole = run(folder, **rest)
    resumed = run(folder, checkpoint, **rest)
    for subject in whole:
        assert_same(whole[subject], resumed[subject], subject)
    return whole, resumed


def noisy(rows):
    """Draws from every global stream."""
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    batch["x"] = batch["x"] + 0.1 * torch.randn_like(batch["x"]) + 0.1 * random.random() + 0.1 * np.random.rand()
    return batch


def share(outputs, labels, num_items_in_batch=None):
    return (outputs["logits"] - labels).pow(2).sum() / num_items_in_batch


def share_and_more(outputs, labels, num_items_in_batch=None):
    return share(outputs, labels, num_items_in_batch) + 0.1 * outputs["logits"].pow(2).mean()


CASES: dict[str, dict[str, Any]] = {
    "in the middle of an epoch": {},
    "at the end of an epoch": {"rows": 20},
    "after a short last update": {"rows": 18},
    "in the first of many epochs": {"rows": 7},
    "two workers": {"dataloader_num_workers": 2},
    "random rows at the end of an epoch": {"data_collator": noisy, "rows": 20},
    "a seed for the data": {"data_seed": 7},
    "in sequence": {"train_sampling_strategy": "sequential"},
    "streams shared": {"isolate_rng": False},
    "bf16": {"bf16": True},
    "cosine": {"lr_scheduler_type": "cosine"},
    "momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "plateau": {"lr_scheduler_type": "reduce_lr_on_plateau", "warmup_steps": 0},
    "grouped by length": {
        "rows": tiny.language_rows(24),
        "build": tiny.tied,
        "train_sampling_strategy": "group_by_length",
    },
    "a loss that is a share": {"compute_loss_func": share},
    "a loss of two scales": {"compute_loss_func": share_and_more},
    "last rows dropped": {"rows": 23, "dataloader_drop_last": True},
}


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_is_the_same(case: str, tmp_path: Path) -> None:
    check(tmp_path, **CASES[case])


def test_rows_that_draw_random_numbers(tmp_path: Path) -> None:
    """In the middle of an epoch: the batch that was read ahead of the checkpoint is drawn again as it was."""
    check(tmp_path, data_collator=noisy)
    check(tmp_path / "accumulated", data_collator=noisy, gradient_accumulation_steps=1)


def test_from_any_step(tmp_path: Path) -> None:
    options = dict(rows=14, save_steps=1)
    whole = run(tmp_path, **options)
    for step in range(1, 10):
        resumed = run(tmp_path, f"checkpoint-{step}", **options)
        for subject in whole:
            assert_same(whole[subject], resumed[subject], f"from step {step}: {subject}")


def test_newest_checkpoint(tmp_path: Path) -> None:
    """`True`: the newest that is there. Here, the end of the run: nothing is left to do."""
    options = dict(save_steps=4, max_steps=8, lr_scheduler_type="constant", warmup_steps=0)
    whole = run(tmp_path, **options)
    resumed = run(tmp_path, True, **options)
    assert_same(whole["weights"], resumed["weights"], "weights")
    assert resumed["place"][0] == 8
    assert resumed["train_loss"] == whole["train_loss"]


def test_evaluations_by_epoch(tmp_path: Path) -> None:
    check(tmp_path, "checkpoint-6", eval_strategy="epoch", save_strategy="epoch", max_steps=-1, num_train_epochs=3)


def test_stream(tmp_path: Path) -> None:
    """Batches that were read are read again and dropped."""

    class Stream(tiny.StreamDataset):
        def __getitem__(self, index):  # `data[:6]` is what is evaluated
            return self.rows[index]

    check(tmp_path, rows=Stream(tiny.regression_rows(100)))


def test_skipped_steps_are_remembered(tmp_path: Path) -> None:
    """Step 3 was not finite: it counts neither before nor after the interruption."""
    rows = tiny.regression_rows(100)
    rows[9]["x"][0] = math.nan
    sequential = dict(train_sampling_strategy="sequential", eval_strategy="no", metric_for_best_model=None)

    def without_early_stopping(folder, checkpoint=None):
        api = Api("ostinato", folder)
        api.set_seed(42)
        args = api.args(**{**BASE, **sequential, "save_steps": 4})
        trainer = api.trainer(regression(), args, train_dataset=rows)
        output = trainer.train(resume_from_checkpoint=checkpoint)
        return {
            "log": in_order(trainer.state.log_history),
            "loss": output.training_loss,
            "weights": trainer.model.state_dict(),
        }

    whole = without_early_stopping(tmp_path)
    assert math.isfinite(whole["loss"])
    assert_same(whole, without_early_stopping(tmp_path, str(tmp_path / "checkpoint-4")), "run")


def test_nonfinite_in_a_row_is_remembered(tmp_path: Path) -> None:
    """Patience of three: two bad steps before the checkpoint, the third one after it ends the run."""
    rows = tiny.regression_rows(40)
    for index in range(8, 40):
        rows[index]["x"][0] = math.nan
    api = Api("ostinato", tmp_path)

    def trainer():
        args = api.args(
            per_device_train_batch_size=4,
            train_sampling_strategy="sequential",
            max_steps=8,
            save_strategy="steps",
            save_steps=4,
            nonfinite_patience=3,
        )
        return api.trainer(tiny.regression(), args, train_dataset=rows)

    with pytest.raises(ostinato.OstinatoError, match="step 5"):
        trainer().train()
    with pytest.raises(ostinato.OstinatoError, match="step 5"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_epoch_that_was_cut_short(tmp_path: Path) -> None:
    """A callback ends the first epoch after two steps; step and epoch no longer agree by arithmetic."""

    def trained(checkpoint=None):
        class CutShort(ostinato.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == 2:
                    control.should_epoch_stop = True

        api = Api("ostinato", tmp_path)
        api.set_seed(42)
        args = api.args(per_device_train_batch_size=4, max_steps=10, save_strategy="steps", save_steps=4)
        trainer = api.trainer(regression(), args, train_dataset=tiny.regression_rows(24), callbacks=[CutShort])
        trainer.train(resume_from_checkpoint=checkpoint)
        return {
            "weights": trainer.model.state_dict(),
            "log": in_order(trainer.state.log_history),
            "epoch": trainer.state.epoch,
        }

    assert_same(trained(), trained(str(tmp_path / "checkpoint-4")), "run")


def test_two_callbacks_of_one_class(tmp_path: Path) -> None:
    def trained(checkpoint=None):
        api = Api("ostinato", tmp_path)
        api.set_seed(42)
        counters = [Counter(0), Counter(100)]
        args = api.args(per_device_train_batch_size=4, max_steps=6, save_strategy="steps", save_steps=3)
        trainer = api.trainer(regression(), args, train_dataset=tiny.regression_rows(24), callbacks=counters)
        trainer.train(resume_from_checkpoint=checkpoint)
        return [(one.steps, one.losses) for one in counters]

    whole = trained()
    assert [steps for steps, _ in whole] == [6, 106]
    assert trained(str(tmp_path / "checkpoint-3")) == whole


def test_what_a_callback_is_given_now_counts_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def resumed(patience: int, checkpoint: str | None = None) -> Any:
        api = Api("ostinato", tmp_path)
        callback = api.EarlyStoppingCallback(early_stopping_patience=patience, early_stopping_threshold=1e9)
        args = api.args(**{**BASE, "max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "save_steps": 1})
        rows = tiny.regression_rows(24)
        trainer = api.trainer(regression(), args, train_dataset=rows, eval_dataset=rows[:6], callbacks=[callback])
        trainer.train(resume_from_checkpoint=checkpoint)
        return callback

    assert resumed(50).early_stopping_patience_counter == 2
    capsys.readouterr()
    again = resumed(40, str(tmp_path / "checkpoint-2"))
    assert (again.early_stopping_patience, again.early_stopping_patience_counter) == (40, 2)
    said = "EarlyStoppingCallback: early_stopping_patience=40 counts, not 50 as in the checkpoint"
    assert capsys.readouterr().err.count(said) == 1
    resumed(50, str(tmp_path / "checkpoint-2"))
    assert "as in the checkpoint" not in capsys.readouterr().err


def test_checkpoint_holds_the_counters(tmp_path: Path) -> None:
    run(tmp_path)
    state = json.loads((tmp_path / "checkpoint-5" / "trainer_state.json").read_text())
    assert state["global_step"] == 5
    assert state["stateful_callbacks"]["Counter"]["attributes"]["steps"] == 5
    assert {"EarlyStoppingCallback", "TrainerControl"} <= set(state["stateful_callbacks"])


def test_longer_than_planned(tmp_path: Path) -> None:
    """The schedule is that of the longer run from there on."""
    run(tmp_path, max_steps=5)
    resumed = run(tmp_path, "checkpoint-5", max_steps=10)
    assert resumed["place"][0] == 10


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No valid checkpoint found"):
        run(tmp_path, True)
    with pytest.raises(ostinato.OstinatoError):
        run(tmp_path, "checkpoint-77")


def test_weights_alone_are_no_resume_point(tmp_path: Path) -> None:
    run(tmp_path, save_only_model=True)
    with pytest.raises(ValueError, match="optimizer"):
        run(tmp_path, "checkpoint-5", save_only_model=True)


def test_ignore_data_skip(tmp_path: Path) -> None:
    """Asked not to go back to its place in the data, a resumed run starts with the first batch of the epoch."""

    def rows_after(checkpoint: str | None, **rest: Any) -> list[float]:
        seen: list[float] = []

        def collate(rows):
            seen.extend(row["labels"] for row in rows)
            return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

        options = dict(train_sampling_strategy="sequential", eval_strategy="no", save_steps=2, max_steps=4)
        api = Api("ostinato", tmp_path)
        args = api.args(**{**BASE, **options, "metric_for_best_model": None, **rest})
        trainer = api.trainer(regression(), args, train_dataset=tiny.regression_rows(24), data_collator=collate)
        trainer.train(resume_from_checkpoint=checkpoint)
        return seen

    first = rows_after(None)
    checkpoint = str(tmp_path / "checkpoint-2")
    assert rows_after(checkpoint)[:4] == first[8:12]
    assert rows_after(checkpoint, ignore_data_skip=True)[:4] == first[:4]


def test_resuming_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    api = Api("ostinato", tmp_path)
    model = regression()
    trainer = api.trainer(model, api.args(bf16=True, max_steps=2), train_dataset=tiny.regression_rows(8))
    with pytest.raises(ostinato.OstinatoError):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))
    assert "forward" not in vars(model)
    assert trainer.is_in_train is False


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    weights = next((tmp_path / "checkpoint-5").glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-3] ^= 0xFF
    weights.write_bytes(content)
    with pytest.raises(ostinato.OstinatoError, match="checkpoint-5"):
        run(tmp_path, "checkpoint-5")
