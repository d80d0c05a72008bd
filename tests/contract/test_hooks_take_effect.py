"""Overrides: what a subclass changes is changed, on transformers and on ours alike.

`test_hooks.py` shows that every hook is called as transformers calls it; here an override does something, and the run
shows it. One test for every name that client libraries override, and for some that they may.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import check_parity, run_one
from tests.support.records import Record, assert_same

pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

SURFACE: dict[str, list[str]] = json.loads((Path(__file__).parent / "data" / "surface.json").read_text("utf-8"))

# Tested with what they belong to, the hub, in test_parity_hub.py.
ELSEWHERE = {"push_to_hub", "create_model_card", "_push_from_checkpoint"}

covered: set[str] = set()
SAVES = {"save_strategy": "steps", "save_steps": 3}
EVALUATES = {"eval_strategy": "steps", "eval_steps": 3}


def hook(*names: str) -> Callable[[Any], Any]:
    """Says which hooks a test is about."""
    covered.update(names)
    return lambda test: test


def compare(
    make: Callable[[Api], type],
    *,
    model: Callable[[], Any] = tiny.regression,
    rows: Callable[[int], Any] = tiny.regression_rows,
    then: Callable[[Api, Any], Any] | None = None,
    trainer: dict[str, Any] | None = None,
    **arguments: Any,
) -> Record:
    """Train six steps with the class that `make` derives from a library's Trainer, on both; the record of ours.

    `then` goes on with the trainer; what it returns is compared too.
    """

    def script(api: Api) -> Any:
        settings = {"per_device_train_batch_size": 4, "num_train_epochs": 1, **arguments}
        options = {"eval_dataset": rows(8), **(trainer or {}), "cls": make(api)}
        built = api.fit(None if "model_init" in options else model(), rows(24), trainer=options, **settings)
        return then(api, built) if then is not None else None

    return check_parity(script)[1]


def plain(**options: Any) -> Record:
    """The same run without the override."""
    return compare(lambda api: api.Trainer, **options)


def ours_alone(make: Callable[[Api], type], **options: Any) -> Record:
    """Ours only, for what transformers does not call by itself."""

    def script(api: Api) -> Any:
        then = options.pop("then", None)
        built = api.fit(tiny.regression(), tiny.regression_rows(), trainer={"cls": make(api)}, max_steps=6, **options)
        return then(api, built) if then is not None else None

    return run_one(script, "ostinato")


def zeros(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()


def is_zero(record: Record) -> bool:
    return not any(value.any() for value in record.weights.values())


# ---- the whole ------------------------------------------------------------------------------------------------------


@hook("train")
def test_train() -> None:
    def make(api):
        class Own(api.Trainer):
            def train(self, *args, **kwargs):
                self.args.max_steps = 2
                return super().train(*args, **kwargs)._replace(training_loss=-1.0)

        return Own

    record = compare(make)
    assert record.state["global_step"] == 2
    assert record.output.training_loss == -1.0


@hook("_inner_training_loop")
def test_a_loop_of_its_own() -> None:
    def make(api):
        class Own(api.Trainer):
            def _inner_training_loop(
                self,
                batch_size=None,
                args=None,
                resume_from_checkpoint=None,
                trial=None,
                ignore_keys_for_eval=None,
            ):
                optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                for batch in DataLoader(self.train_dataset, batch_size=batch_size, collate_fn=self.data_collator):
                    self.model(**self._prepare_inputs(batch))["loss"].backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    self.state.global_step += 1
                return self.state.global_step, 0.5, {}

        return Own

    record = compare(make)
    assert record.output == (6, 0.5, {})
    assert record.log_history == []
    before = tiny.regression().state_dict()
    assert any(not torch.equal(value.cpu(), before[name]) for name, value in record.weights.items())


@hook("_inner_training_loop")
def test_around_the_loop() -> None:
    def make(api):
        class Own(api.Trainer):
            def _inner_training_loop(self, *args, **kwargs):
                self.args.logging_steps = 3
                return super()._inner_training_loop(*args, **kwargs)

        return Own

    assert [entry["step"] for entry in compare(make).log_history] == [3, 6, 6]


# ---- a model --------------------------------------------------------------------------------------------------------


@hook("call_model_init")
def test_a_model_made_otherwise() -> None:
    def make(api):
        class Own(api.Trainer):
            def call_model_init(self, trial=None):
                model = super().call_model_init(trial)
                model.outer.weight.data.zero_()
                return model

        return Own

    record = compare(make, trainer={"model_init": lambda: tiny.regression()}, learning_rate=0.0)
    assert not record.weights["outer.weight"].any()
    assert record.weights["inner.weight"].any()


@hook("_move_model_to_device")
def test_a_model_placed_otherwise() -> None:
    def make(api):
        class Own(api.Trainer):
            def _move_model_to_device(self, model, device):
                super()._move_model_to_device(model, device)
                model.inner.requires_grad_(False)

        return Own

    record = compare(make)
    before = tiny.regression().state_dict()
    assert {name for name, value in record.weights.items() if torch.equal(value.cpu(), before[name])} == {
        "inner.weight",
        "inner.bias",
    }


@hook("_wrap_model")
def test_a_model_in_another() -> None:
    class Doubling(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x, labels=None):
            return {"loss": 2 * self.module(x, labels)["loss"]}

    def make(api):
        class Own(api.Trainer):
            def _wrap_model(self, model, training=True, dataloader=None):
                return Doubling(model) if training else model

        return Own

    losses = compare(make, learning_rate=0.0).logged("loss")
    assert losses == [2 * loss for loss in plain(learning_rate=0.0).logged("loss")]


@hook("create_accelerator_and_postprocess")
def test_what_follows_the_accelerator() -> None:
    def make(api):
        class Own(api.Trainer):
            def create_accelerator_and_postprocess(self):
                super().create_accelerator_and_postprocess()
                self.backward_calls = []
                self.its_device = self.accelerator.device.type
                backward = self.accelerator.backward
                self.accelerator.backward = lambda loss, **rest: (
                    self.backward_calls.append(1) or backward(loss, **rest)
                )

            def training_step(self, model, inputs, num_items_in_batch=None):
                model.train()
                loss = self.compute_loss(model, self._prepare_inputs(inputs))
                self.accelerator.backward(loss)
                return loss.detach()

        return Own

    record = compare(make, then=lambda api, t: (t.its_device == t.args.device.type, len(t.backward_calls)))
    assert record.result == (True, 6)


# ---- rows and batches -----------------------------------------------------------------------------------------------


def labels_of(loader: Any) -> list[float]:
    return [round(float(label), 4) for batch in loader for label in batch["labels"]]


@hook("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader")
def test_own_loaders() -> None:
    def make(api):
        def loader(trainer, rows):
            return DataLoader(rows, batch_size=3, collate_fn=trainer.data_collator)

        class Own(api.Trainer):
            def get_train_dataloader(self):
                return loader(self, self.train_dataset[:9])

            def get_eval_dataloader(self, eval_dataset=None):
                return loader(self, (eval_dataset or self.eval_dataset)[:6])

            def get_test_dataloader(self, test_dataset):
                return loader(self, test_dataset[:2])

        return Own

    def then(api, trainer):
        return trainer.predict(tiny.regression_rows(8)).predictions.shape, trainer.evaluate()["eval_rows"]

    metric = {"compute_metrics": lambda p: {"rows": float(len(p.label_ids))}}
    record = compare(make, trainer=metric, then=then, per_device_eval_batch_size=3)
    assert record.state["global_step"] == 3
    assert record.result == ((2,), 6.0)


def test_the_loss_over_an_own_loader() -> None:
    """transformers lets every batch of such a loader count the same, however many rows it has."""

    def script(api):
        class Own(api.Trainer):
            def get_eval_dataloader(self, eval_dataset=None):
                return DataLoader(self.eval_dataset, batch_size=3, collate_fn=self.data_collator)

        trainers = [
            api.trainer(tiny.regression(), api.args(), cls=cls, eval_dataset=tiny.regression_rows(5))
            for cls in (Own, api.Trainer)
        ]
        return [trainer.evaluate()["eval_loss"] for trainer in trainers]

    (wrong, right), (ours, ours_without) = (run_one(script, name).result for name in ("transformers", "ostinato"))
    assert right == ours_without == pytest.approx(ours)
    assert wrong != pytest.approx(right, rel=0.01)


@hook("_get_dataloader")
def test_own_loader_for_all() -> None:
    def make(api):
        class Own(api.Trainer):
            def _get_dataloader(self, dataset, description, batch_size, *args, **kwargs):
                return super()._get_dataloader(dataset, description, batch_size * 2, *args, **kwargs)

        return Own

    assert compare(make).state["global_step"] == 3


@hook("_get_train_sampler", "_get_eval_sampler")
def test_own_samplers() -> None:
    def make(api):
        class Own(api.Trainer):
            def _get_train_sampler(self, train_dataset=None):
                return list(range(len(self.train_dataset)))[::-1]

            def _get_eval_sampler(self, eval_dataset):
                return list(range(len(eval_dataset)))[::-1]

        return Own

    def then(api, trainer):
        return labels_of(trainer.get_train_dataloader()), trainer.predict(tiny.regression_rows(8)).label_ids.tolist()

    seen, predicted = compare(make, then=then).result
    assert seen == [round(row["labels"], 4) for row in tiny.regression_rows()][::-1]
    assert predicted == pytest.approx([row["labels"] for row in tiny.regression_rows(8)][::-1])


def with_a_note(count: int) -> Any:
    rows = [{**row, "note": float(number)} for number, row in enumerate(tiny.regression_rows(count))]
    return datasets.Dataset.from_list(rows)


def noting(seen: list[tuple[str, ...]]) -> Any:
    def collate(rows):
        seen.append(tuple(sorted(rows[0])))
        return {name: torch.tensor([row[name] for row in rows]) for name in ("x", "labels")}

    return collate


@hook("_remove_unused_columns")
def test_columns_kept() -> None:
    def make(api):
        class Own(api.Trainer):
            def _remove_unused_columns(self, dataset, description=None):
                return dataset

        return Own

    kept: list[tuple[str, ...]] = []
    compare(make, rows=with_a_note, trainer={"data_collator": noting(kept)})
    assert set(kept) == {("labels", "note", "x")}
    removed: list[tuple[str, ...]] = []
    plain(rows=with_a_note, trainer={"data_collator": noting(removed)})
    assert set(removed) == {("labels", "x")}


@hook("_set_signature_columns_if_needed")
@pytest.mark.parametrize("rows", [with_a_note, lambda count: with_a_note(count).to_list()], ids=["columns", "rows"])
def test_columns_added_to_the_signature(rows: Any) -> None:
    def make(api):
        class Own(api.Trainer):
            def _set_signature_columns_if_needed(self):
                super()._set_signature_columns_if_needed()
                if "note" not in self._signature_columns:
                    self._signature_columns += ["note"]

        return Own

    seen: list[tuple[str, ...]] = []
    compare(make, rows=rows, trainer={"data_collator": noting(seen)})
    assert set(seen) == {("labels", "note", "x")}


@hook("_get_collator_with_removed_columns")
def test_columns_kept_for_the_collator() -> None:
    def make(api):
        class Own(api.Trainer):
            def _get_collator_with_removed_columns(self, data_collator, description=None):
                return data_collator

        return Own

    seen: list[tuple[str, ...]] = []
    compare(make, rows=lambda count: with_a_note(count).to_list(), trainer={"data_collator": noting(seen)})
    assert set(seen) == {("labels", "note", "x")}


@hook("get_batch_samples")
def test_own_micro_batches_and_their_count() -> None:
    def make(api):
        class Own(api.Trainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.model_accepts_loss_kwargs, self.counts = True, []

            def get_batch_samples(self, epoch_iterator, num_batches, device):
                samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
                return [{**batch, "x": 0 * batch["x"]} for batch in samples], torch.tensor(50)

            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                self.counts.append(float(num_items_in_batch))
                assert not inputs["x"].any()
                loss = ((model(inputs["x"])["logits"] - inputs["labels"]) ** 2).sum() / num_items_in_batch
                return (loss, {}) if return_outputs else loss

        return Own

    assert set(compare(make, then=lambda api, t: t.counts[-3:], gradient_accumulation_steps=3).result) == {50.0}


@hook("get_batch_samples")
def test_fewer_micro_batches() -> None:
    """An optimizer step is what this returns. (transformers waits for as many batches as it asked for.)"""

    def make(api):
        class Own(api.Trainer):
            steps = 0

            def get_batch_samples(self, epoch_iterator, num_batches, device):
                samples, count = super().get_batch_samples(epoch_iterator, num_batches, device)
                return samples[:1], count

            def training_step(self, *args, **kwargs):
                self.steps += 1
                return super().training_step(*args, **kwargs)

        return Own

    assert ours_alone(make, then=lambda api, trainer: trainer.steps, gradient_accumulation_steps=3).result == 6


@hook("_prepare_inputs", "_prepare_input")
@pytest.mark.parametrize("name", ["_prepare_inputs", "_prepare_input"])
def test_own_inputs(name: str) -> None:
    def make(api):
        def prepare(self, data):
            prepared = getattr(super(Own, self), name)(data)
            return {**prepared, "x": 0 * prepared["x"]} if isinstance(prepared, dict) else prepared

        Own = type("Own", (api.Trainer,), {name: prepare})
        return Own

    def then(api, trainer):
        return trainer.predict(tiny.regression_rows(8)).predictions

    assert len(set(compare(make, then=then, learning_rate=0.0).result.tolist())) == 1


# ---- a step ---------------------------------------------------------------------------------------------------------


@hook("compute_loss")
def test_own_loss() -> None:
    def make(api):
        class Own(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
                return (3 * loss, outputs) if return_outputs else 3 * loss

        return Own

    tripled = compare(make, learning_rate=0.0, then=lambda api, trainer: trainer.evaluate()["eval_loss"])
    once = plain(learning_rate=0.0, then=lambda api, trainer: trainer.evaluate()["eval_loss"])
    assert tripled.logged("loss") == pytest.approx([3 * loss for loss in once.logged("loss")])
    assert tripled.result == pytest.approx(3 * once.result)


@hook("training_step")
def test_own_step() -> None:
    def make(api):
        class Own(api.Trainer):
            def training_step(self, model, inputs, num_items_in_batch=None):
                super().training_step(model, inputs, num_items_in_batch)
                for parameter in model.parameters():
                    parameter.grad.zero_()
                return torch.tensor(7.0, device=self.args.device)

        return Own

    record = compare(make)
    assert record.logged("loss") == [7.0] * 6
    assert record.logged("grad_norm") == [0.0] * 6
    before = tiny.regression().state_dict()
    assert all(torch.equal(value.cpu(), before[name]) for name, value in record.weights.items())


@hook("autocast_smart_context_manager", "compute_loss_context_manager")
@pytest.mark.parametrize("name", ["autocast_smart_context_manager", "compute_loss_context_manager"])
def test_what_surrounds_a_loss(name: str) -> None:
    """Entered once around each loss of a training step, and left again before the next."""

    def make(api):
        def surround(self, *args, **kwargs):
            @contextlib.contextmanager
            def inside():
                self.notes.append("in")
                with getattr(super(Own, self), name)(*args, **kwargs):
                    yield
                self.notes.append("out")

            return inside()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            self.notes.append("loss")
            return super(Own, self).compute_loss(model, inputs, return_outputs)

        Own = type("Own", (api.Trainer,), {name: surround, "compute_loss": compute_loss, "notes": []})
        return Own

    notes = compare(make, then=lambda api, trainer: list(trainer.notes)).result
    assert notes == ["in", "loss", "out"] * 6


@hook("_prepare_context_parallel_inputs")
def test_inputs_for_context_parallelism() -> None:
    def make(api):
        class Own(api.Trainer):
            inside = 0

            def _prepare_context_parallel_inputs(self, model, inputs):
                context, inputs = super()._prepare_context_parallel_inputs(model, inputs)

                @contextlib.contextmanager
                def entered():
                    with context():
                        self.inside += 1
                        yield

                return entered, {**inputs, "x": 0 * inputs["x"]}

        return Own

    record = compare(make, learning_rate=0.0, then=lambda api, trainer: trainer.inside)
    assert record.result == 6
    assert record.logged("loss") != plain(learning_rate=0.0).logged("loss")


@hook("_clip_grad_norm")
def test_own_clipping() -> None:
    def make(api):
        class Own(api.Trainer):
            def _clip_grad_norm(self, model):
                for parameter in model.parameters():
                    parameter.grad.zero_()
                return torch.tensor(3.0)

        return Own

    record = compare(make)
    assert record.logged("grad_norm") == [3.0] * 6
    before = tiny.regression().state_dict()
    assert all(torch.equal(value.cpu(), before[name]) for name, value in record.weights.items())


@hook("_get_num_items_in_batch")
def test_own_count_of_targets() -> None:
    def make(api):
        class Own(api.Trainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.model_accepts_loss_kwargs, self.counts = True, []

            def _get_num_items_in_batch(self, batch_samples, device):
                return torch.tensor(17)

            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                self.counts.append(int(num_items_in_batch))
                return ((model(inputs["x"])["logits"] - inputs["labels"]) ** 2).sum() / num_items_in_batch

        return Own

    record = compare(make, then=lambda api, trainer: set(trainer.counts), gradient_accumulation_steps=3)
    assert record.result == {17}


@hook("_track_num_input_tokens")
def test_own_count_of_tokens() -> None:
    def make(api):
        class Own(api.Trainer):
            def _track_num_input_tokens(self, inputs):
                self.state.num_input_tokens_seen += 11

        return Own

    record = compare(make, include_num_input_tokens_seen="all")
    assert record.state["num_input_tokens_seen"] == 66


# ---- optimizer and schedule -----------------------------------------------------------------------------------------


@hook("create_optimizer", "create_scheduler")
def test_own_optimizer_and_schedule() -> None:
    def make(api):
        class Own(api.Trainer):
            def create_optimizer(self, model=None):
                self.optimizer = torch.optim.SGD(self.model.outer.parameters(), lr=0.5)
                return self.optimizer

            def create_scheduler(self, num_training_steps, optimizer=None):
                factor = lambda step: 1.0 - step / num_training_steps  # noqa: E731
                self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
                return self.lr_scheduler

        return Own

    record = compare(make)
    assert record.logged("learning_rate") == pytest.approx([0.5 * (1 - step / 6) for step in range(6)])
    assert torch.equal(record.weights["inner.weight"].cpu(), tiny.regression().state_dict()["inner.weight"])


@hook("create_optimizer_and_scheduler")
def test_both_at_once() -> None:
    """A name of 4.x that transformers 5 has, but no longer calls."""

    def make(api):
        class Own(api.Trainer):
            def create_optimizer_and_scheduler(self, num_training_steps):
                super().create_optimizer_and_scheduler(num_training_steps)
                for group in self.optimizer.param_groups:
                    group["lr"] = group["initial_lr"] = 0.25
                self.lr_scheduler = torch.optim.lr_scheduler.ConstantLR(self.optimizer, factor=1.0)

        return Own

    assert ours_alone(make).logged("learning_rate") == [0.25] * 6


@hook("get_optimizer_cls_and_kwargs")
def test_own_optimizer_class() -> None:
    def make(api):
        class Own(api.Trainer):
            @staticmethod
            def get_optimizer_cls_and_kwargs(args, model=None):
                return torch.optim.SGD, {"lr": 0.125, "momentum": 0.5}

        return Own

    record = compare(make, lr_scheduler_type="constant", then=lambda api, t: t.optimizer.param_groups[0]["momentum"])
    assert record.logged("learning_rate") == [0.125] * 6
    assert record.result == 0.5


@hook("get_decay_parameter_names")
def test_own_decay() -> None:
    def make(api):
        class Own(api.Trainer):
            def get_decay_parameter_names(self, model):
                return ["inner.bias"]

        return Own

    def then(api, trainer):
        return [(group["weight_decay"], len(group["params"])) for group in trainer.optimizer.param_groups]

    assert sorted(compare(make, then=then, weight_decay=0.1).result) == [(0.0, 5), (0.1, 1)]


# ---- after a step ---------------------------------------------------------------------------------------------------


@hook("_maybe_log_save_evaluate")
def test_nothing_after_a_step() -> None:
    """Without `super()` nothing is logged, evaluated or saved; the summary at the end still comes."""

    def make(api):
        class Own(api.Trainer):
            def _maybe_log_save_evaluate(self, *args, **kwargs):
                pass

        return Own

    record = compare(make, **SAVES, **EVALUATES)
    assert [sorted(set(entry) & {"loss", "eval_loss", "train_loss"}) for entry in record.log_history] == [
        ["train_loss"]
    ]
    assert not record.files


@hook("log")
def test_own_log() -> None:
    def make(api):
        class Own(api.Trainer):
            def log(self, logs, start_time=None):
                super().log({**logs, "doubled": 2 * logs.get("loss", 0.0)}, start_time)

        return Own

    record = compare(make)
    assert record.logged("doubled")[:-1] == [2 * loss for loss in record.logged("loss")]


@hook("_evaluate", "_determine_best_metric")
def test_own_evaluation_of_a_step() -> None:
    def make(api):
        class Own(api.Trainer):
            def _evaluate(self, trial, ignore_keys_for_eval, skip_scheduler=False):
                return {**super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler), "eval_own": 5.0}

            def _determine_best_metric(self, metrics, trial):
                assert metrics["eval_own"] == 5.0
                self.state.best_metric = metrics["eval_own"]
                return True

        return Own

    assert compare(make, **EVALUATES, metric_for_best_model="loss").state["best_metric"] == 5.0


@hook("_get_learning_rate")
def test_own_learning_rate_in_the_log() -> None:
    def make(api):
        class Own(api.Trainer):
            def _get_learning_rate(self):
                return 42.0

        return Own

    assert compare(make).logged("learning_rate") == [42.0] * 6


@hook("floating_point_ops")
def test_own_operations() -> None:
    def make(api):
        class Own(api.Trainer):
            def floating_point_ops(self, inputs):
                return 1000

        return Own

    assert compare(make).state["total_flos"] == 6000


@hook("store_flos")
def test_operations_not_kept() -> None:
    def make(api):
        class Own(api.Trainer):
            def floating_point_ops(self, inputs):
                return 1000

            def store_flos(self):
                self.state.total_flos = 5.0

        return Own

    assert compare(make).state["total_flos"] == 5.0


@hook("is_world_process_zero", "is_local_process_zero")
def test_not_the_main_process() -> None:
    def make(api):
        class Own(api.Trainer):
            def is_world_process_zero(self):
                return False

            is_local_process_zero = is_world_process_zero

        return Own

    record = compare(make)
    assert not record.state["is_world_process_zero"]
    assert not record.state["is_local_process_zero"]


# ---- evaluation -----------------------------------------------------------------------------------------------------


@hook("evaluate")
def test_own_evaluate() -> None:
    def make(api):
        class Own(api.Trainer):
            def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
                metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
                metrics[f"{metric_key_prefix}_own"] = -float(self.state.global_step)
                return metrics

        return Own

    best = {"load_best_model_at_end": True, "metric_for_best_model": "own", "greater_is_better": True}
    record = compare(make, **SAVES, **EVALUATES, **best)
    assert record.state["best_metric"] == -3.0
    assert record.state["best_global_step"] == 3


@hook("predict")
def test_own_predict() -> None:
    def make(api):
        class Own(api.Trainer):
            def predict(self, test_dataset, ignore_keys=None, metric_key_prefix="test"):
                output = super().predict(test_dataset, ignore_keys, metric_key_prefix)
                return output._replace(predictions=0 * output.predictions)

        return Own

    record = compare(make, then=lambda api, trainer: trainer.predict(tiny.regression_rows(8)).predictions)
    assert not record.result.any()


@hook("evaluation_loop")
def test_own_evaluation_loop() -> None:
    def make(api):
        class Own(api.Trainer):
            def evaluation_loop(self, dataloader, description, *args, **kwargs):
                output = super().evaluation_loop(dataloader, description, *args, **kwargs)
                prefix = kwargs["metric_key_prefix"]
                metrics = {**output.metrics, f"{prefix}_{description}": 1.0}
                return type(output)(output.predictions, output.label_ids, metrics, 100)

        return Own

    def then(api, trainer):
        return sorted(trainer.predict(tiny.regression_rows(8)).metrics)

    record = compare(make, then=then, **EVALUATES)
    assert record.logged("eval_Evaluation") == [1.0, 1.0]
    assert "test_Prediction" in record.result


@hook("prediction_loop")
def test_the_older_loop() -> None:
    """transformers 5 has no such method; ours is the loop, and an override of it is the subclass's own business."""

    def make(api):
        class Own(api.Trainer):
            def prediction_loop(self, dataloader, description, *args, **kwargs):
                output = super().prediction_loop(dataloader, description, *args, **kwargs)
                return output._replace(metrics={"own": float(output.num_samples)})

            def evaluate(self, eval_dataset=None, **kwargs):
                loader = self.get_eval_dataloader(eval_dataset)
                metrics = self.prediction_loop(loader, "Evaluation").metrics
                self.log(metrics)
                return metrics

        return Own

    record = ours_alone(make, then=lambda api, trainer: trainer.evaluate(tiny.regression_rows(8)))
    assert record.result["own"] == 8.0
    assert record.log_history[-1]["own"] == 8.0


@hook("prediction_step")
def test_own_prediction_step() -> None:
    def make(api):
        class Own(api.Trainer):
            def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
                labels = inputs["labels"]
                return torch.tensor(0.75), torch.ones_like(labels), labels

        return Own

    metric = {"compute_metrics": lambda p: {"mean": float(p.predictions.mean())}}
    record = compare(make, trainer=metric, **EVALUATES)
    assert record.logged("eval_loss") == [0.75, 0.75]
    assert record.logged("eval_mean") == [1.0, 1.0]


# ---- saving and loading ---------------------------------------------------------------------------------------------


def in_checkpoint(record: Record, step: int = 3) -> set[str]:
    return {Path(name).name for name in record.files if Path(name).parent.name == f"checkpoint-{step}"}


@hook("_save_checkpoint")
def test_own_checkpoints() -> None:
    def make(api):
        class Own(api.Trainer):
            def _save_checkpoint(self, model, trial):
                directory = Path(self._get_output_dir(trial)) / f"mine-{self.state.global_step}"
                directory.mkdir(parents=True)
                torch.save(self.model.state_dict(), directory / "weights.pt")

        return Own

    assert compare(make, **SAVES).files == ["mine-3/weights.pt", "mine-6/weights.pt"]


@hook("save_model", "_save")
@pytest.mark.parametrize("name", ["save_model", "_save"])
def test_own_files_of_a_model(name: str) -> None:
    def make(api):
        def save(self, output_dir=None, *args, **kwargs):
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            torch.save(self.model.state_dict(), Path(output_dir) / "weights.pt")

        return type("Own", (api.Trainer,), {name: save})

    def then(api, trainer):
        trainer.save_model(str(api.output_dir / "final"))
        return sorted(path.name for path in (api.output_dir / "final").iterdir())

    record = compare(make, **SAVES, then=then)
    assert record.result == ["weights.pt"]
    assert "weights.pt" in in_checkpoint(record)
    assert "model.safetensors" not in in_checkpoint(record)


@hook("_save", "_load_from_checkpoint", "_load_best_model")
def test_a_model_in_files_of_its_own_and_back() -> None:
    """The best model and the checkpoint to go on from are read by the methods that belong to the one that wrote."""

    def make(api):
        class Own(api.Trainer):
            def _save(self, output_dir=None, state_dict=None):
                Path(output_dir).mkdir(parents=True, exist_ok=True)
                torch.save(self.model.state_dict(), Path(output_dir) / "weights.pt")

            def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
                self.model.load_state_dict(torch.load(Path(resume_from_checkpoint) / "weights.pt"))

            def _load_best_model(self):
                self._load_from_checkpoint(self.state.best_model_checkpoint)

        return Own

    def script(api):
        options = {"cls": make(api), "train_dataset": tiny.regression_rows(), "eval_dataset": tiny.regression_rows(8)}
        args = api.args(**SAVES, **EVALUATES, load_best_model_at_end=True, max_steps=6, learning_rate=0.3)
        first = api.trainer(tiny.regression(), args, **options)
        first.train()
        again = api.trainer(tiny.regression(), args, **options)
        again.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-3"))
        best = Path(first.state.best_model_checkpoint) / "weights.pt"
        return [trainer.state.best_global_step for trainer in (first, again)], dict(torch.load(best))

    theirs, ours = (run_one(script, library) for library in ("transformers", "ostinato"))
    assert theirs.result[0] == ours.result[0]
    for name, value in ours.weights.items():
        assert torch.equal(value, ours.result[1][name])
    assert_same(theirs.weights, ours.weights, "weights")


@hook("_load_best_model")
def test_own_best_model() -> None:
    def make(api):
        class Own(api.Trainer):
            def _load_best_model(self):
                zeros(self.model)

        return Own

    assert is_zero(compare(make, **SAVES, **EVALUATES, load_best_model_at_end=True))


def going_on(make: Callable[[Api], type], **arguments: Any) -> Record:
    """Train six steps with a checkpoint after the third; then another trainer goes on from there."""

    def then(api: Api, trainer: Any) -> Any:
        straight = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        again = api.trainer(
            tiny.regression(dropout=0.5), trainer.args, cls=type(trainer), train_dataset=tiny.regression_rows()
        )
        again.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-3"))
        return all(torch.equal(value, straight[name]) for name, value in again.model.state_dict().items())

    def script(api: Api) -> Any:
        settings = {"per_device_train_batch_size": 4, "num_train_epochs": 1, **SAVES, **arguments}
        settings = {**settings, **api.ours(isolate_rng=False)}
        model = tiny.regression(dropout=0.5)
        return then(api, api.fit(model, tiny.regression_rows(), trainer={"cls": make(api)}, **settings))

    theirs, ours = (run_one(script, library) for library in ("transformers", "ostinato"))
    assert theirs.result == ours.result
    assert theirs.logged("loss") == ours.logged("loss")
    assert_same(theirs.weights, ours.weights, "weights")
    return ours


def test_going_on_without_overrides() -> None:
    assert going_on(lambda api: api.Trainer).result


@hook("_load_from_checkpoint")
def test_weights_not_loaded() -> None:
    def make(api):
        class Own(api.Trainer):
            def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
                zeros(self.model)

        return Own

    assert is_zero(going_on(make, learning_rate=0.0))


@hook("_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler")
def test_optimizer_in_a_file_of_its_own() -> None:
    def make(api):
        class Own(api.Trainer):
            def _save_optimizer_and_scheduler(self, output_dir):
                parts = {"optimizer": self.optimizer.state_dict(), "schedule": self.lr_scheduler.state_dict()}
                torch.save(parts, Path(output_dir) / "mine.pt")

            def _load_optimizer_and_scheduler(self, checkpoint):
                if checkpoint is not None:
                    parts = torch.load(Path(checkpoint) / "mine.pt", weights_only=False)
                    self.optimizer.load_state_dict(parts["optimizer"])
                    self.lr_scheduler.load_state_dict(parts["schedule"])

        return Own

    record = going_on(make)
    assert record.result, "as if it had not been broken off"
    assert "mine.pt" in in_checkpoint(record)
    assert not in_checkpoint(record) & {"optimizer.safetensors", "optimizer.json", "scheduler.json"}


@hook("_load_optimizer_and_scheduler")
def test_optimizer_not_loaded() -> None:
    def make(api):
        class Own(api.Trainer):
            def _load_optimizer_and_scheduler(self, checkpoint):
                pass

        return Own

    assert not going_on(make).result


@hook("_save_rng_state", "_load_rng_state")
def test_random_state_in_a_file_of_its_own() -> None:
    def make(api):
        class Own(api.Trainer):
            def _save_rng_state(self, output_dir):
                torch.save(torch.get_rng_state(), Path(output_dir) / "mine.pt")

            def _load_rng_state(self, checkpoint):
                if checkpoint is not None:
                    torch.set_rng_state(torch.load(Path(checkpoint) / "mine.pt"))

        return Own

    record = going_on(make)
    assert record.result, "as if it had not been broken off"
    assert not in_checkpoint(record) & {"rng-0.json", "rng-0.safetensors"}


@hook("_load_rng_state")
def test_another_random_state_loaded() -> None:
    def make(api):
        class Own(api.Trainer):
            def _load_rng_state(self, checkpoint):
                torch.manual_seed(123)

        return Own

    assert not going_on(make).result


@hook("_get_output_dir")
def test_own_directory() -> None:
    def make(api):
        class Own(api.Trainer):
            def _get_output_dir(self, trial):
                return str(api.output_dir / "elsewhere")

        return Own

    record = compare(make, **SAVES)
    assert {name.split("/")[0] for name in record.files} == {"elsewhere"}


# ---- generation -----------------------------------------------------------------------------------------------------


def generated(make: Callable[[Api], type], library: str, **arguments: Any) -> Any:
    def script(api: Api) -> Any:
        quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "dataloader_pin_memory": False}
        options = {**quiet, "predict_with_generate": True, "per_device_eval_batch_size": 4, **arguments}
        args = api.Seq2SeqTrainingArguments(str(api.output_dir), **options)
        trainer = api.trainer(tiny.t5(), args, cls=make(api), processing_class=tiny.tokenizer())
        return trainer.predict(tiny.translation_rows(8))

    return run_one(script, library).result


@hook("_pad_tensors_to_max_len")
def test_ids_filled_up_otherwise() -> None:
    """Called for ids and for labels, with the width that the model's own configuration has."""

    def make(api):
        class Own(api.Seq2SeqTrainer):
            def _pad_tensors_to_max_len(self, tensor, max_length):
                filled = tensor.new_full((len(tensor), max_length), 7)
                filled[:, : tensor.shape[-1]] = tensor
                return filled

        return Own

    theirs, ours = (generated(make, library, generation_max_length=6) for library in ("transformers", "ostinato"))
    assert ours.predictions.shape == (8, 20)
    assert (ours.predictions[:, 6:] == 7).all()
    assert (ours.label_ids[:, 8:] == 7).all()
    assert ours.predictions.tolist() == theirs.predictions.tolist()
    assert ours.label_ids.tolist() == theirs.label_ids.tolist()


@hook("load_generation_config")
def test_own_generation_config() -> None:
    def make(api):
        from transformers import GenerationConfig

        class Own(api.Seq2SeqTrainer):
            @staticmethod
            def load_generation_config(gen_config_arg):
                return GenerationConfig(
                    max_length=gen_config_arg.max_length + 2, decoder_start_token_id=0, pad_token_id=0
                )

        return Own

    from transformers import GenerationConfig

    given = GenerationConfig(max_length=5, decoder_start_token_id=0, pad_token_id=0)
    theirs, ours = (generated(make, library, generation_config=given) for library in ("transformers", "ostinato"))
    assert ours.predictions.shape == theirs.predictions.shape == (8, 7)


# ---- names of transformers 4 ----------------------------------------------------------------------------------------


@hook("tokenizer")
def test_own_tokenizer_property() -> None:
    def make(api):
        class Own(api.Trainer):
            @property
            def tokenizer(self):
                return f"the {self.processing_class}"

            @tokenizer.setter
            def tokenizer(self, value):
                self.processing_class = value

        return Own

    def then(api, trainer):
        trainer.tokenizer = "words"
        return trainer.processing_class, trainer.tokenizer

    assert compare(make, then=then).result == ("words", "the words")


@hook("use_apex", "propagate_args_to_deepspeed")
def test_names_of_other_back_ends() -> None:
    """Nobody but the subclass itself asks for them: its own answer is the one it gets."""

    def make(api):
        class Own(api.Trainer):
            use_apex = True

            def propagate_args_to_deepspeed(self, auto_find_batch_size=False):
                return "mine"

            def training_step(self, *args, **kwargs):
                assert self.use_apex
                assert self.propagate_args_to_deepspeed() == "mine"
                return super().training_step(*args, **kwargs)

        return Own

    assert compare(make).state["global_step"] == 6


@hook("_tune_save_checkpoint")
def test_a_checkpoint_for_ray_goes_through_the_override(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a search with Ray asks for one, so no line says that an override of it has no effect."""
    given: list[str] = []

    def make(api):
        class Reported(api.Trainer):
            def _tune_save_checkpoint(self, checkpoint_dir):
                given.append(checkpoint_dir)
                super()._tune_save_checkpoint(checkpoint_dir)

        return Reported

    def ask(api, trainer):
        trainer._trial = {"learning_rate": 0.1}  # as in a search
        trainer._tune_save_checkpoint("kept")
        return sorted(path.name for path in Path("kept/checkpoint-6").iterdir())

    assert "MANIFEST.json" in ours_alone(make, then=ask, save_strategy="no").result
    assert given == ["kept"]
    assert "has no effect" not in capsys.readouterr().err


# ---- none forgotten -------------------------------------------------------------------------------------------------


def test_every_hook_that_clients_override_is_here() -> None:
    assert set(SURFACE["overridden"]) - covered == ELSEWHERE
