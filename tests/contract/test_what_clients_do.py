"""What client libraries do with a trainer that their own tests would miss here: the same on both libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from tests.support import tiny
from tests.support.apis import Api
from tests.support.dropin_runs import run_both_ways
from tests.support.parity import check_parity, run_both
from tests.support.records import assert_same

pytest.importorskip("transformers")


class Dropping(nn.Module):
    """A model whose inside was loaded for use: it is in evaluation mode, and the model itself is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).eval()

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        prediction = self.inside(x).squeeze(-1)
        return {"loss": ((prediction - labels) ** 2).mean(), "logits": prediction}


class Numbers(IterableDataset[Any]):
    """A stream of rows."""

    def __iter__(self) -> Iterator[Any]:
        yield from tiny.regression_rows()


def test_all_of_a_model_is_trained_in_training_mode() -> None:
    modes: list[bool] = []

    def script(api: Api) -> None:
        model = Dropping()
        model.inside.register_forward_hook(lambda module, inputs, output: modes.append(module.training))
        args = api.args(max_steps=4, **api.ours(isolate_rng=False))
        api.trainer(model, args, train_dataset=tiny.regression_rows()).train()

    check_parity(script)
    assert modes
    assert modes.count(True) >= 8  # four steps each; what is tried beforehand leaves no trace


@pytest.mark.parametrize("name", ["params", "optimizer_dict"])
def test_an_optimizer_may_be_given_its_groups(name: str) -> None:
    def script(api: Api) -> list[int]:
        class Grouped(api.Trainer):
            @staticmethod
            def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> Any:
                weights = [one for one in model.parameters() if one.dim() > 1]
                return torch.optim.SGD, {"lr": args.learning_rate, name: [{"params": weights}]}

        args = api.args(max_steps=3, **api.ours(isolate_rng=False))
        trainer = api.trainer(tiny.regression(), args, cls=Grouped, train_dataset=tiny.regression_rows())
        trainer.train()
        return [len(group["params"]) for group in trainer.optimizer.param_groups]

    theirs, _ = check_parity(script)
    assert theirs.result == [2]  # one group, the two weights in it


def test_batches_may_be_lists_that_the_step_makes_into_inputs() -> None:
    def script(api: Api) -> None:
        class FromLists(api.Trainer):
            def _prepare_inputs(self, inputs: Any) -> Any:
                return super()._prepare_inputs(
                    {
                        "input_ids": torch.tensor([row["input_ids"] for row in inputs]),
                        "labels": torch.tensor([row["labels"] for row in inputs]),
                    }
                )

        args = api.args(max_steps=3, remove_unused_columns=False, **api.ours(isolate_rng=False))
        rows = tiny.classification_rows()
        api.trainer(tiny.bert(), args, cls=FromLists, train_dataset=rows, data_collator=list).train()

    check_parity(script)


def test_the_state_of_accelerate_may_be_configured_already(ours: Api) -> None:
    args = ours.args(accelerator_config={"use_configured_state": True})
    assert args.distributed_state.num_processes == 1
    assert args.distributed_state.is_main_process
    assert args.distributed_state.distributed_type in ("NO",)


@pytest.mark.parametrize("later", [False, True], ids=["by a subclass", "by the user"])
def test_what_was_set_of_a_model_holds_for_those_of_model_init(later: bool) -> None:
    """`train` makes a new model; what somebody has said of labels and loss since the first one still holds."""

    def squares(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return nn.functional.one_hot(labels.clamp(min=0), tiny.VOCAB).sub(outputs["logits"]).square().mean()

    def script(api: Api) -> list[Any]:
        smoother = object()

        def state(trainer: Any) -> None:
            trainer.label_names, trainer.can_return_loss = ["labels", "more"], True
            trainer.model_accepts_loss_kwargs, trainer.compute_loss_func = False, squares
            trainer.label_smoother = smoother

        class Stating(api.Trainer):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                if not later:
                    state(self)

        args = api.args(max_steps=2, **api.ours(isolate_rng=False))
        trainer = api.trainer(None, args, cls=Stating, train_dataset=tiny.language_rows(), model_init=tiny.deaf)
        if later:
            state(trainer)
        trainer.train()
        said = [trainer.label_names, trainer.can_return_loss, trainer.model_accepts_loss_kwargs]
        return [*said, trainer.compute_loss_func is squares, trainer.label_smoother is smoother]

    theirs, _ = check_parity(script)
    assert theirs.result == [["labels", "more"], True, False, True, True]


def test_names_of_labels_that_were_added_to_are_kept() -> None:
    def script(api: Api) -> list[str]:
        args = api.args(max_steps=1, **api.ours(isolate_rng=False))
        trainer = api.trainer(None, args, train_dataset=tiny.regression_rows(), model_init=lambda: tiny.regression())
        trainer.label_names.append("more")
        trainer.train()
        return trainer.label_names

    theirs, _ = check_parity(script)
    assert theirs.result == ["labels", "more"]


def test_a_batch_without_rows_has_a_gradient_of_zero() -> None:
    """The step is taken, whatever a mean over nothing is."""

    def script(api: Api) -> list[tuple[float, float]]:
        calls = iter(range(100))

        def collate(rows: list[Any]) -> dict[str, Any]:
            batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
            return {name: values[:0] for name, values in batch.items()} if next(calls) == 2 else batch

        args = api.args(max_steps=4, per_device_train_batch_size=4, **api.ours(isolate_rng=False))
        trainer = api.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows(), data_collator=collate)
        trainer.train()
        return [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]

    theirs, _ = check_parity(script)
    assert theirs.result[2] == (0.0, 0.0)


def test_a_model_loads_its_checkpoints_by_its_own_method() -> None:
    """Its `load_state_dict` is asked also where the names in the file are not those of the model."""

    class Renamed(tiny.Regression):
        def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
            state_dict = {name.removeprefix("stored."): value for name, value in state_dict.items()}
            return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def script(api: Api) -> None:
        class StoresOtherNames(api.Trainer):
            def _save(self, output_dir: Any = None, state_dict: Any = None) -> None:
                state = {f"stored.{name}": value for name, value in self.model.state_dict().items()}
                super()._save(output_dir, state_dict=state)

        def build(**arguments: Any) -> Any:
            schedule = dict.fromkeys(("save_steps", "eval_steps"), 2)
            best = {"metric_for_best_model": "loss", "greater_is_better": True, "load_best_model_at_end": True}
            args = api.args(
                **schedule, **best, **arguments, save_strategy="steps", eval_strategy="steps", learning_rate=0.1
            )
            rows = tiny.regression_rows()
            return api.trainer(
                tiny.seeded(Renamed), args, cls=StoresOtherNames, train_dataset=rows, eval_dataset=rows[:8]
            )

        options = api.ours(isolate_rng=False)
        build(max_steps=4, lr_scheduler_type="constant", **options).train()
        resumed = build(max_steps=6, lr_scheduler_type="constant", **options)
        resumed.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-4"))

    theirs, ours = run_both(script)
    assert theirs.logged("loss") == ours.logged("loss")
    assert theirs.state["best_global_step"] < 6
    assert_same(theirs.weights, ours.weights, "weights")


class TestFilesThatASubclassSaves:
    """Before and after `super()._save_checkpoint`, under the name of the checkpoint: they are part of it."""

    @staticmethod
    def build(api: Api, **arguments: Any) -> Any:
        class Writes(api.Trainer):
            def _save_checkpoint(self, model: Any, trial: Any, **kwargs: Any) -> None:
                directory = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
                (directory / "samples").mkdir(parents=True, exist_ok=True)
                for name in ("tokens.json", "samples/0.txt", "trainer_state.json"):
                    (directory / name).write_text(f"of step {self.state.global_step} in {self.args.run_name}")
                super()._save_checkpoint(model, trial, **kwargs)
                (directory / "after.txt").write_text("written last")

        args = api.args(save_strategy="steps", save_steps=2, **arguments)
        return api.trainer(tiny.regression(), args, cls=Writes, train_dataset=tiny.regression_rows())

    def test_are_in_the_checkpoint(self, api: Api) -> None:
        self.build(api, max_steps=4, save_total_limit=1, run_name="one").train()
        (checkpoint,) = api.output_dir.glob("checkpoint-*")
        assert (checkpoint / "tokens.json").read_text() == "of step 4 in one"
        assert (checkpoint / "samples" / "0.txt").read_text() == "of step 4 in one"
        assert (checkpoint / "after.txt").read_text() == "written last"
        assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == 4
        assert [path.name for path in api.output_dir.iterdir() if path.name.startswith("run-")] == []
        assert self.build(api, max_steps=6).train(resume_from_checkpoint=True).global_step == 6

    def test_in_a_directory_with_checkpoints_of_another_run(self, ours: Api) -> None:
        """The other run's stay as they are; transformers writes into them."""
        for name in ("one", "two"):
            self.build(ours, max_steps=2, run_name=name).train()
        assert (ours.output_dir / "checkpoint-2" / "tokens.json").read_text() == "of step 2 in two"
        (other,) = ours.output_dir.glob("run-*/checkpoint-2")
        assert (other / "tokens.json").read_text() == "of step 2 in one"

    def test_of_a_callback(self, api: Api) -> None:
        class Samples(api.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                directory = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                directory.mkdir(parents=True)
                (directory / "samples.txt").write_text("written first")

        trainer = {"callbacks": [Samples()]}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, max_steps=1, save_strategy="epoch")
        assert (api.output_dir / "checkpoint-1" / "samples.txt").read_text() == "written first"
        assert (api.output_dir / "checkpoint-1" / "model.safetensors").exists()

    def test_what_a_broken_run_left_is_moved_away(self, ours: Api) -> None:
        old = ours.output_dir / "checkpoint-2" / "optimizer.pt"
        old.parent.mkdir(parents=True)
        old.write_text("half of it")
        self.build(ours, max_steps=2).train()
        assert not old.exists()
        assert (ours.output_dir / "run-unknown" / "checkpoint-2" / "optimizer.pt").exists()


class TestWhatASubclassReplaces:
    """What only a method of a subclass reads may be anything; an ordinary user still gets an early error."""

    @staticmethod
    def load(rows: list[Any]) -> DataLoader[Any]:
        def collate(batch: list[Any]) -> dict[str, Any]:
            return {name: torch.tensor([row[name] for row in batch]) for name in batch[0]}

        return DataLoader(rows, batch_size=4, collate_fn=collate)  # type: ignore[arg-type]

    @classmethod
    def loads_by_itself(cls, api: Api) -> Any:
        class Loads(api.Trainer):
            def get_train_dataloader(self) -> Any:
                return cls.load(tiny.regression_rows())

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return cls.load(tiny.regression_rows()[:8])

        return Loads

    @staticmethod
    def evaluates_by_itself(api: Api) -> Any:
        class Evaluates(api.Trainer):
            def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
                self.log({"eval_own": 1.0})
                return {"eval_own": 1.0}

        return Evaluates

    @pytest.mark.parametrize("accumulates", [False, True], ids=["plain", "accumulated"])
    def test_a_loss_function_that_only_switches_scaling_off(self, accumulates: bool) -> None:
        def script(api: Api) -> Any:
            class Own(api.Trainer):
                def compute_loss(
                    self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
                ) -> Any:
                    outputs = model(**inputs)
                    return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

            rows = tiny.regression_rows()
            args = api.args(
                max_steps=3, gradient_accumulation_steps=2 if accumulates else 1, **api.ours(isolate_rng=False)
            )
            given = {"train_dataset": rows, "eval_dataset": rows[:8], "compute_loss_func": "non-None: no scaling"}
            trainer = api.trainer(tiny.regression(), args, cls=Own, **given)
            trainer.train()
            return trainer.evaluate()["eval_loss"], trainer.compute_loss_func

        check_parity(script)

    @pytest.mark.parametrize(
        "given", ["dummy", 7, {"a": Numbers(), "b": Numbers()}], ids=["text", "number", "streams"]
    )
    def test_data_sets_that_own_loaders_ignore(self, given: Any) -> None:
        def script(api: Api) -> None:
            args = api.args(max_steps=2, eval_strategy="steps", eval_steps=1, **api.ours(isolate_rng=False))
            cls = self.loads_by_itself(api)
            sets = {"train_dataset": given, "eval_dataset": given, "data_collator": "replaced"}
            api.trainer(tiny.regression(), args, cls=cls, **sets).train()

        theirs, ours = run_both(script)
        assert theirs.logged("loss") == ours.logged("loss")
        assert theirs.logged("eval_loss") == ours.logged("eval_loss")
        assert theirs.logged("eval_b_loss") == ours.logged("eval_b_loss")

    @pytest.mark.parametrize("metrics", [5, "own", {"a": 1}], ids=str)
    def test_metrics_and_sets_that_an_own_evaluation_ignores(self, metrics: Any) -> None:
        def script(api: Api) -> None:
            args = api.args(max_steps=2, eval_strategy="steps", eval_steps=1, **api.ours(isolate_rng=False))
            given = {"eval_dataset": "dummy", "compute_metrics": metrics, "preprocess_logits_for_metrics": "none"}
            cls = self.evaluates_by_itself(api)
            api.trainer(tiny.regression(), args, cls=cls, train_dataset=tiny.regression_rows(), **given).train()

        theirs, _ = check_parity(script)
        assert theirs.logged("eval_own")[:2] == [1.0, 1.0]

    def test_what_a_constructor_replaces_after_the_base_class(self, api: Api) -> None:
        class Replaces(api.Trainer):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.data_collator, self.eval_dataset = api.default_data_collator, None

        given = {"data_collator": "replaced", "eval_dataset": "dummy"}
        trainer = api.trainer(
            tiny.regression(), api.args(max_steps=1), cls=Replaces, train_dataset=tiny.regression_rows(), **given
        )
        assert api.train(trainer).global_step == 1

    def test_model_init_of_an_own_call(self, api: Api) -> None:
        class Calls(api.Trainer):
            def call_model_init(self, trial: Any = None) -> Any:
                return tiny.regression()

        args = api.args(max_steps=1)
        trainer = api.trainer(None, args, cls=Calls, train_dataset=tiny.regression_rows(), model_init="tiny")
        assert api.train(trainer).global_step == 1

    @pytest.mark.parametrize(
        "given",
        [{"data_collator": "c"}, {"train_dataset": "rows"}, {"compute_loss_func": "f"}, {"compute_metrics": 5}],
        ids=lambda given: next(iter(given)),
    )
    @pytest.mark.parametrize("own_constructor", [False, True])
    def test_others_get_an_early_error(self, ours: Api, given: dict[str, Any], own_constructor: bool) -> None:
        class Own(ours.Trainer):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)

        with pytest.raises(TypeError, match=next(iter(given))):
            (Own if own_constructor else ours.Trainer)(tiny.regression(), ours.args(), **given)

    def test_what_the_default_method_reads_after_all_is_checked_then(self, ours: Api) -> None:
        class Asks(ours.Trainer):
            def get_train_dataloader(self) -> Any:
                return super().get_train_dataloader()

        trainer = Asks(tiny.regression(), ours.args(max_steps=1), train_dataset="rows")
        with pytest.raises(TypeError, match="train_dataset='rows' is a string"):
            trainer.train()


def test_intervals_that_nothing_reads_may_be_none(api: Api) -> None:
    unused = {"save_steps": None, "logging_steps": None, "logging_strategy": "epoch", "train_sampling_strategy": None}
    args = api.args(max_steps=4, per_device_train_batch_size=12, **unused)
    trainer = api.fit(tiny.regression(), tiny.regression_rows(), max_steps=4, per_device_train_batch_size=12, **unused)
    assert (args.save_steps, args.logging_steps) == (None, None)
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [2, 4]
    if api.is_ours:  # transformers fails with a comparison
        for name in ("save", "logging"):
            with pytest.raises(ValueError, match=f"{name}_steps=None"):
                api.args(**{f"{name}_strategy": "steps", f"{name}_steps": None})


def test_a_constructor_need_not_call_that_of_the_base_class(api: Api) -> None:
    class Bare(api.Trainer):
        def __init__(self, model: nn.Module) -> None:
            self.model = model

    model = tiny.regression()
    assert Bare(model).model is model


@pytest.mark.parametrize("name", ["compute_loss_func", "label_smoother", "model_accepts_loss_kwargs", "label_names"])
def test_parts_may_be_set_before_the_constructor_of_the_base_class(api: Api, name: str) -> None:
    """As on transformers, the constructor then sets them anew."""

    class Early(api.Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            setattr(self, name, early)
            assert getattr(self, name) is early
            super().__init__(*args, **kwargs)

    early = object()
    trainer = api.trainer(tiny.regression(), api.args(max_steps=1), cls=Early, train_dataset=tiny.regression_rows())
    assert getattr(trainer, name) is not early
    assert api.train(trainer).global_step == 1


def run_alone(code: str, *environment: str) -> str:
    """Run code in a process of its own, where nothing is imported yet, and return what it prints."""
    words = dict(one.split("=", 1) for one in environment)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env={**os.environ, **words}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_loggers_of_accelerate_work_before_there_is_a_trainer(tmp_path: Path) -> None:
    code = (
        "import logging; from accelerate.logging import get_logger; from accelerate.state import PartialState\n"
        f"import ostinato; ostinato.TrainingArguments({str(tmp_path)!r}, use_cpu=True)\n"
        "get_logger('client').info('a line'); print(PartialState().device, PartialState().num_processes)"
    )
    assert run_alone(code) == "cpu 1"


def test_accelerate_is_not_imported_for_its_state(tmp_path: Path) -> None:
    code = f"import sys, ostinato; ostinato.TrainingArguments({str(tmp_path)!r}); print('accelerate' in sys.modules)"
    assert run_alone(code) == "False"


def test_defaults_that_scripts_change_in_transformers_modules_take_effect(tmp_path: Path) -> None:
    """The lists and tables are ours under the drop-in, and a name may be set anew there."""
    code = f"""
import ostinato.dropin, torch
import transformers.trainer
from transformers import SchedulerType, TrainerCallback, TrainingArguments, Trainer
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION
from transformers.trainer import DEFAULT_CALLBACKS
class Mine(TrainerCallback): pass
class Display(TrainerCallback): pass
DEFAULT_CALLBACKS.append(Mine)
transformers.trainer.DEFAULT_PROGRESS_CALLBACK = Display
transformers.trainer.PrinterCallback = Mine
transformers.trainer.default_data_collator = list
def build(optimizer, num_warmup_steps, num_training_steps, **options):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
TYPE_TO_SCHEDULER_FUNCTION[SchedulerType.LINEAR] = build
args = TrainingArguments({str(tmp_path)!r}, use_cpu=True, learning_rate=0.2, disable_tqdm=False)
trainer = Trainer(torch.nn.Linear(1, 1), args)
names = [type(one).__name__ for one in trainer.callback_handler.callbacks]
trainer.create_optimizer_and_scheduler(4)
print("Mine" in names, "Display" in names, "ProgressCallback" in names, trainer.get_learning_rates())
transformers.trainer.get_scheduler = lambda name, optimizer, **options: build(optimizer, 0, 0) and [name, options]
other = Trainer(torch.nn.Linear(1, 1), TrainingArguments({str(tmp_path)!r}, use_cpu=True, disable_tqdm=True))
print([type(one).__name__ for one in other.callback_handler.callbacks[:3]], other.data_collator is list)
print(other.create_scheduler(4, torch.optim.SGD(other.model.parameters(), lr=1.0))[0])
"""
    assert run_alone(code, "OSTINATO_VERBOSITY=error").splitlines() == [
        "True True False [0.1, 0.1]",
        "['DefaultFlowCallback', 'Mine', 'Mine'] True",
        "SchedulerType.LINEAR",
    ]


def test_a_tracker_that_a_script_adds_to_the_table_takes_effect(tmp_path: Path) -> None:
    theirs, ours = run_both_ways(
        """
        from transformers import Trainer, TrainerCallback, TrainingArguments
        from transformers.integrations import INTEGRATION_TO_CALLBACK, get_reporting_integration_callbacks
        import torch
        class Mine(TrainerCallback): pass
        class Other(TrainerCallback): pass
        INTEGRATION_TO_CALLBACK["mine"] = Mine
        INTEGRATION_TO_CALLBACK["tensorboard"] = Other
        args = TrainingArguments("out", use_cpu=True, report_to=["mine", "tensorboard"])
        names = [type(one).__name__ for one in Trainer(torch.nn.Linear(1, 1), args).callback_handler.callbacks]
        classes = [one.__name__ for one in get_reporting_integration_callbacks(["mine", "tensorboard"])]
        none = get_reporting_integration_callbacks("none")
        del INTEGRATION_TO_CALLBACK["mine"]
        result = [names[1:3], classes, none, "mine" in INTEGRATION_TO_CALLBACK]
        """,
        tmp_path,
    )
    assert ours.result == theirs.result == [["Mine", "Other"], ["Mine", "Other"], [], False]


@pytest.mark.parametrize("name", ["_save", "_save_rng_state", "floating_point_ops", "save_model", "training_step"])
def test_a_method_that_is_set_on_the_class_is_called(name: str, ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    own = getattr(ours.Trainer, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return own(*args, **kwargs)

    monkeypatch.setattr(ours.Trainer, name, counted)
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=2, save_strategy="steps", save_steps=2)
    assert calls


def test_defaults_that_scripts_change_in_our_module_take_effect(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(ours.TrainerCallback):
        pass

    class Display(ours.TrainerCallback):
        pass

    module = sys.modules[ours.Trainer.__module__]
    assert module.DEFAULT_PROGRESS_CALLBACK is ours.ProgressCallback
    monkeypatch.setattr(module, "DEFAULT_CALLBACKS", [*module.DEFAULT_CALLBACKS, Mine])
    monkeypatch.setitem(vars(module), "DEFAULT_PROGRESS_CALLBACK", Display)
    trainer = ours.Trainer(tiny.regression(), ours.args(disable_tqdm=False))
    kinds = [type(one) for one in trainer.callback_handler.callbacks]
    assert Mine in kinds and Display in kinds and ours.ProgressCallback not in kinds
