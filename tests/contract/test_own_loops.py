"""Subclasses with a training loop of their own, which use the trainer's parts for everything else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import check_parity

pytest.importorskip("transformers")
SCHEDULES = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4, "max_steps": 8}


def begin(trainer: Any, batch_size: int) -> DataLoader[Any]:
    """Do what such loops do before their first step."""
    trainer.create_optimizer_and_scheduler(num_training_steps=8)
    trainer.model_wrapped, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    state = trainer.state
    state.max_steps, state.num_train_epochs, state.train_batch_size = 8, 2, batch_size
    state.compute_steps(trainer.args, 8)
    trainer.control = trainer.callback_handler.on_train_begin(trainer.args, state, trainer.control)
    return DataLoader(trainer.train_dataset, batch_size=batch_size, collate_fn=trainer.data_collator)


def end_step(trainer: Any) -> None:
    trainer.optimizer.step()
    trainer.lr_scheduler.step()
    trainer.model.zero_grad()
    trainer.state.global_step += 1
    trainer.state.epoch = trainer.state.global_step / 8
    trainer.control = trainer.callback_handler.on_step_end(trainer.args, trainer.state, trainer.control)


def make_inner(api: Api) -> type:
    """The loop inside `train()`: logs, evaluations and checkpoints are left to one method."""

    class Inner(api.Trainer):
        def _inner_training_loop(
            self, batch_size=None, args=None, resume_from_checkpoint=None, trial=None, ignore_keys_for_eval=None
        ):
            started, total = time.time(), torch.tensor(0.0)
            self._total_loss_scalar, self._globalstep_last_logged = 0.0, 0
            self.current_gradient_accumulation_steps = 1
            for batch in begin(self, 3):
                total += self.training_step(self.model_wrapped, batch)
                norm = self._clip_grad_norm(self.model_wrapped)
                rate = self._get_learning_rate()
                end_step(self)
                self._maybe_log_save_evaluate(
                    total, norm, self.model, trial, self.state.epoch, ignore_keys_for_eval, started, learning_rate=rate
                )
            self._total_loss_scalar += total.item()
            return self.state.global_step, self._total_loss_scalar / self.state.global_step, {}

    return Inner


def make_whole(api: Api) -> type:
    """`train()` itself, as in TRL's PPOTrainer."""

    class Whole(api.Trainer):
        def train(self):  # type: ignore[override]
            for batch in begin(self, 3):
                loss = self.model(**self._prepare_inputs(batch))["loss"]
                self.accelerator.backward(loss)
                end_step(self)
                self.log({"loss": loss.item()})
                if self.control.should_evaluate:
                    self._determine_best_metric(self.evaluate(), trial=None)
                if self.control.should_save:
                    self._save_checkpoint(self.model, trial=None)
                    self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            return self.state.global_step, 0.0, {}

    return Whole


@pytest.mark.parametrize("make", [make_inner, make_whole])
def test_logs_evaluations_and_checkpoints(make: Any) -> None:
    def script(api: Api) -> Any:
        trainer = api.trainer(
            tiny.regression(),
            api.args(logging_steps=2, save_total_limit=1, metric_for_best_model="loss", **SCHEDULES),
            train_dataset=tiny.regression_rows(),
            eval_dataset=tiny.regression_rows(5),
            cls=make(api),
        )
        output = trainer.train()
        best, name = trainer.state.best_model_checkpoint, "model.safetensors"
        saved = sorted(path.name for path in api.output_dir.glob("checkpoint-*"))
        files = {path.name for path in (api.output_dir / saved[-1]).iterdir()}
        logs = [
            {key: value for key, value in entry.items() if not key.endswith(("runtime", "per_second", "tion_time"))}
            for entry in trainer.state.log_history
        ]
        return [output[:2], logs, saved, best and Path(best).name, name in files]

    _, logs, saved, best, *_ = check_parity(script)[1].result
    assert [entry["step"] for entry in logs if "eval_loss" in entry] == [4, 8]
    assert (saved, best) == (["checkpoint-8"], "checkpoint-8")


def test_a_run_of_the_usual_loop_cannot_go_on_from_its_checkpoint(ours: Api) -> None:
    settings = {"train_dataset": tiny.regression_rows(), "eval_dataset": tiny.regression_rows(5)}
    ours.trainer(tiny.regression(), ours.args(**SCHEDULES), cls=make_whole(ours), **settings).train()
    checkpoint = str(ours.output_dir / "checkpoint-4")
    with pytest.raises(ValueError, match="does not tell where its run stands in the data"):
        ours.trainer(tiny.regression(), ours.args(**SCHEDULES), **settings).train(resume_from_checkpoint=checkpoint)
    forked = ours.trainer(tiny.regression(), ours.args(**SCHEDULES), **settings)
    assert forked.train(resume_from_checkpoint=checkpoint, resume_mode="fork").global_step == 8


def test_an_error_of_the_loop_is_raised_as_it_is(api: Api) -> None:
    class Failing(api.Trainer):
        def _inner_training_loop(self, *args, **kwargs):
            begin(self, 3)
            raise KeyError("of the loop")

    trainer = api.trainer(tiny.regression(), api.args(), train_dataset=tiny.regression_rows(), cls=Failing)
    with pytest.raises(KeyError, match="of the loop"):
        trainer.train()


# ------------------------------------------------------------------------------ parameters that methods had in 4.x


def make_older(ours: Api) -> type:
    class Older(ours.Trainer):
        seen: set[str] = set()

        def _get_train_sampler(self):
            self.seen.add("sampler")
            return range(len(self.train_dataset))[::-1]

        def get_batch_samples(self, epoch_iterator, num_batches):
            self.seen.add("batches")
            return super().get_batch_samples(epoch_iterator, num_batches, self.args.device)

        def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time):
            self.seen.add("report")
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time)

        def _evaluate(self, trial, ignore_keys_for_eval):
            self.seen.add("evaluate")
            return super()._evaluate(trial, ignore_keys_for_eval)

        def log(self, logs):
            self.seen.add("log")
            super().log(logs)

        def training_step(self, model, inputs):
            self.seen.add("step")
            return super().training_step(model, inputs)

        def compute_loss(self, model, inputs, return_outputs=False):
            self.seen.add("loss")
            return super().compute_loss(model, inputs, return_outputs)

        def _save_checkpoint(self, model, trial, metrics=None):
            self.seen.add("save")
            super()._save_checkpoint(model, trial)

    return Older


def test_overrides_with_the_parameters_of_older_versions(ours: Api) -> None:
    """transformers 5 calls most of them with more than they take."""
    kind = make_older(ours)
    rows = tiny.regression_rows()
    arguments = ours.args(gradient_accumulation_steps=2, logging_steps=1, **SCHEDULES)
    trainer = ours.trainer(tiny.regression(), arguments, cls=kind, train_dataset=rows, eval_dataset=rows)
    assert trainer.train().global_step == 8
    assert kind.seen == {"sampler", "batches", "report", "evaluate", "log", "step", "loss", "save"}
    assert len([entry for entry in trainer.state.log_history if "loss" in entry]) == 8


# ------------------------------------------------------------------------------------------------- numbers of a run


@pytest.mark.parametrize("arguments", [{}, {"max_steps": 10}, {"num_train_epochs": 1.5}], ids=str)
def test_the_numbers_of_a_run(arguments: dict[str, Any]) -> None:
    def script(api: Api) -> Any:
        args = api.args(**{"per_device_train_batch_size": 5, "gradient_accumulation_steps": 2, **arguments})
        trainer = api.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows())
        numbers = trainer.set_initial_training_values(args, trainer.get_train_dataloader())
        return [*map(int, numbers)]

    theirs = check_parity(script)[0].result
    assert len(theirs) == 7
