"""What a run leaves behind: output of `train()`, printed and saved metrics, files of the state."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tests.support import tiny
from tests.support.parity import check_parity, run_both, run_one
from tests.support.records import is_time

pytest.importorskip("transformers")

SIZES = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 1}

METRICS = {
    "epoch": 3.0,
    "train_loss": 0.12345678,
    "train_runtime": 3725.4567,
    "train_samples_per_second": 12.3456,
    "total_flos": 12_345_678_901_234.0,
    "train_samples": 1234,
    "before_init_mem_cpu": 1_500_000,
    "perplexity": float("inf"),
    "note": "text",
}


def fit(api, *, prints=False, **arguments):
    trainer = {"eval_dataset": tiny.regression_rows(10, seed=2), "prints": prints}
    return api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **{**SIZES, **arguments})


def test_train_output() -> None:
    def script(api):
        fit(api)
        output = api.train_outputs[-1]
        return output._fields, type(output).__name__, list(output.metrics)

    check_parity(script)


def test_train_output_of_a_transformers_model() -> None:
    """Its floating point operations are counted."""

    def script(api):
        trainer = api.fit(tiny.bert(), tiny.classification_rows(), **SIZES)
        return trainer.state.total_flos, trainer.floating_point_ops({"input_ids": torch.ones(2, 8)})

    theirs, _ = check_parity(script)
    assert theirs.result[0] > 0


def test_metrics_format() -> None:
    """transformers' is a function without `self`, so it can only be called on the class; ours answers on both."""
    _, ours = check_parity(lambda api: api.Trainer.metrics_format(METRICS))
    on_instance = run_one(lambda api: api.trainer(tiny.regression(), api.args()).metrics_format(METRICS), "ostinato")
    assert on_instance.result == ours.result


def test_printed_metrics(capsys) -> None:

    def script(api):
        trainer = api.trainer(tiny.regression(), api.args())
        capsys.readouterr()
        trainer.log_metrics("train", METRICS)
        return capsys.readouterr().out

    theirs, ours = run_both(script)
    assert "***** train metrics *****" in theirs.result
    assert ours.result == theirs.result


@pytest.mark.parametrize("combined", [True, False])
def test_saved_metrics(combined: bool) -> None:
    def script(api):
        trainer = api.trainer(tiny.regression(), api.args())
        trainer.save_metrics("train", {k: v for k, v in METRICS.items() if k != "perplexity"}, combined=combined)
        trainer.save_metrics("eval", {"eval_loss": 0.5}, combined=combined)
        return {path.name: json.loads(path.read_text()) for path in sorted(Path(api.output_dir).glob("*.json"))}

    theirs, _ = check_parity(script)
    assert "train_results.json" in theirs.result
    assert ("all_results.json" in theirs.result) is combined


def test_saved_metrics_are_the_same_text() -> None:
    def script(api):
        trainer = api.trainer(tiny.regression(), api.args())
        trainer.save_metrics("train", {"b": 1.5, "a": 2})
        return {path.name: path.read_text() for path in sorted(Path(api.output_dir).glob("*.json"))}

    check_parity(script)


def test_saved_state() -> None:
    def script(api):
        trainer = fit(api, eval_strategy="epoch")
        trainer.save_state()
        content = json.loads((Path(api.output_dir) / "trainer_state.json").read_text())
        return {key: content[key] for key in sorted(content) if key != "stateful_callbacks"}

    check_parity(script)


def test_state_of_a_checkpoint() -> None:
    def script(api):
        fit(api, save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=2)
        states = {}
        for path in sorted(Path(api.output_dir).glob("checkpoint-*/trainer_state.json")):
            content = json.loads(path.read_text())
            states[path.parent.name] = {key: content[key] for key in sorted(content) if key != "stateful_callbacks"}
        return states

    theirs, _ = check_parity(script)
    assert list(theirs.result) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


@pytest.mark.parametrize("saving", ["no", "epoch"])
def test_states_of_callbacks(saving: str) -> None:
    """`state.stateful_callbacks`: the control, and every callback that can write itself down, with its numbers."""

    def script(api):
        evaluation = {"eval_strategy": "epoch", "metric_for_best_model": "loss", "save_strategy": saving}
        trainer = {"eval_dataset": tiny.regression_rows(10), "callbacks": [api.EarlyStoppingCallback(3)]}
        built = api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **SIZES, **evaluation)
        return {name: built.state.stateful_callbacks[name] for name in sorted(built.state.stateful_callbacks)}

    theirs, _ = check_parity(script)
    assert list(theirs.result) == ["EarlyStoppingCallback", "TrainerControl"]


def test_log() -> None:
    """`log` adds epoch and step, writes history, and tells the callbacks."""

    def script(api):
        trainer = api.trainer(tiny.regression(), api.args())
        trainer.state.epoch = 1.5
        trainer.state.global_step = 7
        logs = {"mine": 2.0}
        trainer.log(logs)
        trainer.log({"other": 1})
        return logs, trainer.state.log_history

    check_parity(script)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_log_with_a_start_time(split: str) -> None:
    """With `start_time` and a token count, the rate of tokens is part of the entry."""

    def script(api):
        trainer = {"data_collator": api.DataCollatorWithPadding(tiny.tokenizer())}
        rows = tiny.ragged_classification_rows()
        built = api.fit(tiny.bert(), rows, trainer=trainer, include_num_input_tokens_seen="all", **SIZES)
        built.log({f"{split}_thing": 1.0}, 0.0)
        return [sorted(entry) for entry in built.state.log_history]

    check_parity(script)


def test_printed_log_lines(capsys) -> None:
    """Without a progress bar every entry is printed, numbers with four significant digits."""

    def script(api):
        capsys.readouterr()
        fit(api, eval_strategy="epoch", logging_steps=2, prints=True)
        lines = capsys.readouterr().out.splitlines()
        return [re.sub(r"('[a-z_]*(runtime|per_second)': )'[^']*'", r"\1-", line) for line in lines]

    theirs, ours = run_both(script)
    assert len(theirs.result) == 5
    assert ours.result == theirs.result


def test_printing_takes_nothing_away() -> None:
    """transformers is wrong: its printer removes `total_flos` from the metrics it prints, so that `train()` returns it
    with a progress bar and not without. Ours returns the same in both cases.
    """
    silent = run_one(lambda api: fit(api), "transformers").output.metrics
    theirs, ours = run_both(lambda api: fit(api, prints=True))
    assert list(ours.output.metrics) == list(silent)
    assert set(silent) - set(theirs.output.metrics) == {"total_flos"}


def test_keys_of_evaluate_and_predict() -> None:
    def script(api):
        trainer = fit(api)
        evaluated = trainer.evaluate(metric_key_prefix="dev")
        prediction = trainer.predict(tiny.regression_rows(5))
        return list(evaluated), list(prediction.metrics), prediction._fields, type(prediction).__name__

    theirs, _ = check_parity(script)
    assert any(is_time(key) for key in theirs.result[0])


def test_files_of_a_saved_model() -> None:
    """The weights under the names that others look for; ours may lay further files beside them."""

    def script(api):
        trainer = api.fit(tiny.bert(), tiny.classification_rows(), **SIZES)
        trainer.save_model(str(api.output_dir / "final"))
        from safetensors.torch import load_file

        return load_file(str(api.output_dir / "final" / "model.safetensors"))

    theirs, ours = check_parity(script)
    assert {"final/model.safetensors", "final/config.json", "final/training_args.bin"} <= set(theirs.files)
    assert {"final/model.safetensors", "final/config.json"} <= set(ours.files)


def test_learning_rates_and_parameters() -> None:
    def script(api):
        trainer = fit(api, weight_decay=0.1)
        groups = trainer.get_optimizer_group()
        return trainer.get_num_trainable_parameters(), trainer.get_learning_rates(), len(groups)

    check_parity(script)


def test_optimizer_group_of_a_parameter() -> None:
    """transformers is wrong: it compares tensors by value, and fails as soon as two shapes do not match. Ours finds
    the group by identity.
    """

    def script(api):
        trainer = fit(api, weight_decay=0.1)
        parameters = (trainer.model.outer.weight, trainer.model.outer.bias)
        return [trainer.get_optimizer_group(parameter)["weight_decay"] for parameter in parameters]

    with pytest.raises(RuntimeError, match="size of tensor"):
        run_one(script, "transformers")
    assert run_one(script, "ostinato").result == [0.1, 0.0]


def test_number_of_examples_and_batch_size() -> None:
    def script(api):
        trainer = fit(api, gradient_accumulation_steps=2)
        loader = trainer.get_train_dataloader()
        return (
            trainer.num_examples(loader),
            trainer.get_total_train_batch_size(trainer.args),
            len(loader),
            trainer.is_world_process_zero(),
            trainer.is_local_process_zero(),
        )

    check_parity(script)
