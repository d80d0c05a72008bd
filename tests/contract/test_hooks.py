"""Overrides: every method that the stock loop calls on itself is called by ours too, with the same arguments.

One subclass overrides them all, notes how it was called (number of positional arguments, names of keywords), and
passes on to `super()`. It trains with accumulation, evaluation, saving and the best model, evaluates, predicts,
resumes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.support import tiny
from tests.support.parity import check_parity, run_one

pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

# Called as often as transformers does: one override, one effect.
COUNTED = (
    "train",
    "_inner_training_loop",
    "get_train_dataloader",
    "get_eval_dataloader",
    "get_test_dataloader",
    "_get_train_sampler",
    "_get_eval_sampler",
    "_get_dataloader",
    "get_batch_samples",
    "training_step",
    "compute_loss",
    "_prepare_inputs",
    "create_optimizer",
    "create_scheduler",
    "_maybe_log_save_evaluate",
    "log",
    "evaluate",
    "_evaluate",
    "predict",
    "evaluation_loop",
    "prediction_step",
    "_determine_best_metric",
    "_save_checkpoint",
    "save_model",
    "_save",
    "_save_optimizer_and_scheduler",
    "_save_rng_state",
    "_load_best_model",
    "_load_from_checkpoint",
    "_load_optimizer_and_scheduler",
    "_load_rng_state",
    "call_model_init",
    "_move_model_to_device",
    "create_accelerator_and_postprocess",
    "floating_point_ops",
)

# Called, but how often is the library's own business.
# Not among them: `set_initial_training_values`, `_issue_warnings_after_load`, `_finish_current_push`, `get_tp_size`:
# no scanned client overrides those, and what they do has another shape here.
CALLED = (
    "_prepare_input",
    "_prepare_context_parallel_inputs",
    "compute_loss_context_manager",
    "autocast_smart_context_manager",
    "get_decay_parameter_names",
    "_get_learning_rate",
    "_set_signature_columns_if_needed",
    "_remove_unused_columns",
    "_get_collator_with_removed_columns",
    "_get_output_dir",
    "_wrap_model",
    "store_flos",
    "num_examples",
    "get_total_train_batch_size",
    "is_world_process_zero",
    "is_local_process_zero",
    "_hp_search_setup",
    "_report_to_hp_search",
    "_save_scaler",
    "_load_scaler",
    "_load_callback_state",
)

SCHEDULE = {
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "load_best_model_at_end": True,
    "gradient_accumulation_steps": 2,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 2,
}

Calls = dict[str, list[tuple[int, tuple[str, ...]]]]


def spying(trainer_class: type, calls: Calls, names: tuple[str, ...]) -> type:
    """A subclass that notes the calls of `names`, and passes them on."""

    def override(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name].append((len(args), tuple(sorted(kwargs))))
            return getattr(super(Spy, self), name)(*args, **kwargs)

        return method

    known = [name for name in names if callable(getattr(trainer_class, name, None))]
    Spy = type("Spy", (trainer_class,), {name: override(name) for name in known})
    return Spy


def noted(library: str) -> Calls:
    calls: Calls = defaultdict(list)

    def script(api):
        rows, data = tiny.classification_rows(), datasets.Dataset.from_list(tiny.classification_rows(8))
        spy = spying(api.Trainer, calls, COUNTED + CALLED)
        trainer = {"cls": spy, "eval_dataset": data, "model_init": lambda: tiny.bert()}
        built = api.fit(None, rows, trainer=trainer, **SCHEDULE)
        built.evaluate()
        built.predict(data)
        built.save_model(str(api.output_dir / "final"))
        built.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-4"))

    run_one(script, library)
    return calls


@pytest.fixture(scope="module")
def calls_of_both() -> tuple[Calls, Calls]:
    return noted("transformers"), noted("ostinato")


@pytest.mark.parametrize("name", COUNTED + CALLED)
def test_called_with_the_same_arguments(name: str, calls_of_both: tuple[Calls, Calls]) -> None:
    theirs, ours = calls_of_both
    assert theirs[name], "the stock loop calls it"
    assert sorted(set(ours[name])) == sorted(set(theirs[name]))


@pytest.mark.parametrize("name", COUNTED)
def test_called_as_often(name: str, calls_of_both: tuple[Calls, Calls]) -> None:
    theirs, ours = calls_of_both
    # Each of the two runs asks once more on its first step: whether the loss depends on `num_items_in_batch`.
    trials = 2 if name == "compute_loss" else 0
    assert len(ours[name]) == len(theirs[name]) + trials


def test_spying_changes_nothing() -> None:
    """The run with every method overridden is still the run of the other library."""

    def script(api):
        spy = spying(api.Trainer, defaultdict(list), COUNTED + CALLED)
        trainer = {"cls": spy, "eval_dataset": tiny.regression_rows(8)}
        schedule = {**SCHEDULE, "gradient_accumulation_steps": 1}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **schedule)

    check_parity(script)


def test_static_choice_of_the_optimizer() -> None:
    """`get_optimizer_cls_and_kwargs` is static, and may be overridden."""

    def script(api):
        calls = []

        class Slower(api.Trainer):
            @staticmethod
            def get_optimizer_cls_and_kwargs(args, model=None):
                calls.append(model is not None)
                kind, kwargs = api.Trainer.get_optimizer_cls_and_kwargs(args, model)
                return kind, {**kwargs, "lr": 0.001}

        trainer = {"cls": Slower}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, num_train_epochs=1)
        kind, kwargs = api.Trainer.get_optimizer_cls_and_kwargs(api.args(adam_beta1=0.5))
        return calls, kind, sorted(kwargs), kwargs["lr"], kwargs["betas"]

    theirs, _ = check_parity(script)
    assert theirs.logged("learning_rate")[0] == 0.001


def test_own_loader_is_used() -> None:
    def script(api):
        class Own(api.Trainer):
            def get_train_dataloader(self):
                from torch.utils.data import DataLoader

                return DataLoader(self.train_dataset, batch_size=6, collate_fn=self.data_collator)

        api.fit(tiny.regression(), tiny.regression_rows(), trainer={"cls": Own}, num_train_epochs=2)

    theirs, _ = check_parity(script)
    assert theirs.state["global_step"] == 8


def test_own_sampler_is_used() -> None:
    def script(api):
        class Own(api.Trainer):
            def _get_train_sampler(self, train_dataset=None):
                return list(range(12))[::-1]

        trainer = {"cls": Own}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, per_device_train_batch_size=4)

    theirs, _ = check_parity(script)
    assert theirs.state["global_step"] == 9


def test_own_training_step() -> None:
    """A step that does everything itself, with the accelerator's `backward`."""

    def script(api):
        class Own(api.Trainer):
            def training_step(self, model, inputs, num_items_in_batch=None):
                model.train()
                inputs = self._prepare_inputs(inputs)
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
                self.accelerator.backward(loss)
                return loss.detach()

        trainer = {"cls": Own}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, per_device_train_batch_size=4)

    check_parity(script)


def test_own_report() -> None:
    """`_maybe_log_save_evaluate` sees the loss of the steps since the last log, and may add to the entry."""

    def script(api):
        seen = []

        class Own(api.Trainer):
            def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch, ignore_keys, start, **rest):
                seen.append((tr_loss.item(), float(grad_norm), trial, epoch, ignore_keys))
                return super()._maybe_log_save_evaluate(
                    tr_loss, grad_norm, model, trial, epoch, ignore_keys, start, **rest
                )

        arguments = {"per_device_train_batch_size": 4, "logging_steps": 3, "num_train_epochs": 2}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer={"cls": Own}, **arguments)
        return seen

    check_parity(script)


def test_own_log() -> None:
    def script(api):
        class Own(api.Trainer):
            def log(self, logs, start_time=None):
                logs["extra"] = 1.0
                return super().log(logs, start_time)

        trainer = {"cls": Own, "eval_dataset": tiny.regression_rows(8)}
        sizes = {"per_device_train_batch_size": 4, "eval_strategy": "epoch", "num_train_epochs": 2}
        return api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **sizes).evaluate()

    check_parity(script)


def test_own_prediction_step() -> None:
    def script(api):
        class Own(api.Trainer):
            def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
                loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
                return loss, 2 * logits, labels

        trainer = api.trainer(tiny.bert(), api.args(per_device_eval_batch_size=4), cls=Own)
        prediction = trainer.predict(tiny.classification_rows(10))
        return prediction.predictions, prediction.label_ids, prediction.metrics

    check_parity(script)


def test_own_optimizer_and_schedule() -> None:
    def script(api):
        import torch

        class Own(api.Trainer):
            def create_optimizer(self, model=None):
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                return self.optimizer

            def create_scheduler(self, num_training_steps, optimizer=None):
                self.lr_scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
                return self.lr_scheduler

        trainer = {"cls": Own}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, per_device_train_batch_size=4)

    theirs, _ = check_parity(script)
    assert theirs.logged("learning_rate")[:4] == [0.1, 0.1, 0.1, 0.05]
