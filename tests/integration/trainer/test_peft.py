"""Models with PEFT's adapters: seen through to the model inside, saved alone, resumed bit for bit."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ostinato.core.notices import forget_notices
from tests.support import adapters, tiny
from tests.support.apis import Api, load_library
from tests.support.records import assert_same

pytest.importorskip("transformers", reason="adapters are tried on models of transformers")
pytest.importorskip("peft", reason="the dev extra has it")
load_library("transformers")

SCHEDULE = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}

every_model = pytest.mark.parametrize("kind", list(adapters.MODELS))


def make(ours: Api, kind: str = "classifier", **arguments: Any) -> Any:
    build, rows = adapters.MODELS[kind]
    with_note = [{**row, "note": "for people"} for row in rows()]
    args = ours.args(**{**SCHEDULE, **arguments})
    return ours.trainer(build(), args, train_dataset=with_note, eval_dataset=with_note[:8])


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def trained_names(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


# ------------------------------------------------------------------------------------------------- seen through


@every_model
def test_columns_and_labels_are_those_of_the_model_inside(ours: Api, kind: str) -> None:
    trainer = make(ours, kind)
    assert trainer.label_names == ["labels"]
    assert trainer.model_columns().left_out == ["note"]


def test_the_model_inside_is_named_where_columns_are_left_out(ours: Api, capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    make(ours).get_train_dataloader().collate_fn([{"input_ids": [1], "labels": 0, "note": ""}])
    assert "left out note, which BertForSequenceClassification.forward does not take" in capsys.readouterr().err


def test_metrics_are_computed(ours: Api) -> None:
    build, rows = adapters.MODELS["classifier"]
    trainer = ours.trainer(
        build(),
        ours.args(max_steps=1),
        train_dataset=rows(),
        eval_dataset=rows(),
        compute_metrics=lambda p: {"rows": len(p.label_ids), "classes": p.predictions.shape[-1]},
    )
    metrics = trainer.evaluate()
    assert (metrics["eval_rows"], metrics["eval_classes"]) == (24, 3)


def test_only_adapters_are_trained(ours: Api) -> None:
    trainer = make(ours, "causal")
    before = weights_of(trainer.model)
    trainer.train()
    changed = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == trained_names(trainer.model)
    optimized = [one for group in trainer.optimizer.param_groups for one in group["params"]]
    assert sum(one.numel() for one in optimized) == trainer.get_num_trainable_parameters()


def test_what_is_told_names_the_share_that_is_trained(ours: Api) -> None:
    trainer = make(ours, "causal")
    trained, everything = trainer.model.get_nb_trainable_parameters()
    share = f"{100 * trained / everything:.2f} %"
    assert f"{trained:,} parameters are trained, {share} of all" in str(trainer.plan())
    assert f"Training changes {share} of the parameters" in str(trainer.explain())
    full = ours.trainer(tiny.llama(), ours.args(max_steps=1), train_dataset=tiny.language_rows())
    assert "of all" not in str(full.plan())
    assert "Training changes" not in str(full.explain())


# ---------------------------------------------------------------------------------------------- saved and resumed


@every_model
def test_adapters_are_saved_alone(ours: Api, kind: str) -> None:
    trainer = make(ours, kind)
    trainer.train()
    trainer.save_model(str(ours.output_dir / "saved"))
    for directory in (ours.output_dir / "checkpoint-2", ours.output_dir / "saved"):
        names = {path.name for path in directory.iterdir()}
        assert {"adapter_model.safetensors", "adapter_config.json", "README.md"} <= names
        assert "model.safetensors" not in names
        saved = load_file(directory / "adapter_model.safetensors")
        assert sum(value.numel() for value in saved.values()) <= trainer.get_num_trainable_parameters() * 1.01
    assert (ours.output_dir / "saved" / "second").is_dir() == (kind == "two adapters")


@every_model
def test_a_resumed_run_is_the_same(ours: Api, kind: str) -> None:
    whole = make(ours, kind)
    whole.train()
    wanted = weights_of(whole.model)
    shutil.rmtree(ours.output_dir / "checkpoint-4")
    resumed = make(ours, kind)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 4
    assert_same(weights_of(resumed.model), wanted)
    assert trained_names(resumed.model) == trained_names(whole.model)


@pytest.mark.parametrize("kind", ["classifier", "dropout", "prompt", "two adapters"])
def test_resuming_can_be_verified(ours: Api, kind: str) -> None:
    trainer = make(ours, kind)
    before = weights_of(trainer.model)
    assert trainer.verify_resume(steps=1).equal
    assert_same(weights_of(trainer.model), before)


@pytest.mark.parametrize("arguments", [{}, {"save_strategy": "no", "save_steps": 500}], ids=["saved", "never saved"])
def test_the_best_adapters_are_loaded(ours: Api, arguments: dict[str, Any]) -> None:
    settings = {"load_best_model_at_end": True, "eval_steps": 1, "save_steps": 1, "learning_rate": 0.5, "max_steps": 6}
    trainer = make(ours, "classifier", **{**settings, **arguments})
    seen: list[dict[str, torch.Tensor]] = []

    class Keep(ours.TrainerCallback):
        def on_evaluate(self, args, state, control, model=None, **kwargs):
            seen.append(weights_of(model))

    trainer.add_callback(Keep)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    best = losses.index(min(losses))
    assert best < len(losses) - 1, "the last evaluation is not the best: something must be loaded"
    assert_same(weights_of(trainer.model), seen[best])


def test_an_adapter_inside_a_model_of_transformers(ours: Api) -> None:
    model = tiny.llama()
    tiny.seeded(lambda: model.add_adapter(adapters.load_peft().LoraConfig(r=2, target_modules=["q_proj"])))
    rows = tiny.language_rows()
    args = ours.args(**SCHEDULE, load_best_model_at_end=True)
    trainer = ours.trainer(model, args, train_dataset=rows, eval_dataset=rows[:8])
    trainer.train()
    names = {path.name for path in (ours.output_dir / "checkpoint-2").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json"} <= names
    assert "model.safetensors" not in names
    best = trainer.evaluate()["eval_loss"]
    assert best == min(entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry)


def test_peft_reads_what_was_saved(ours: Api) -> None:
    trainer = make(ours, "classifier")
    trainer.train()
    trainer.save_model(str(ours.output_dir / "saved"))
    again = adapters.load_peft().PeftModel.from_pretrained(tiny.bert(dropout=0.0), ours.output_dir / "saved")
    assert_same(weights_of(again), weights_of(trainer.model))


def test_what_peft_writes_is_kept(ours: Api) -> None:
    trainer = make(ours, "classifier")
    trainer.train()
    config = json.loads((ours.output_dir / "checkpoint-4" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["inference_mode"]) == ("LORA", 2, True)
    assert "peft" in (ours.output_dir / "checkpoint-4" / "README.md").read_text()
    assert trainer.model.peft_config["default"].inference_mode is False, "saving changes nothing for who trains on"


def test_merging_after_training_gives_the_same_predictions(ours: Api) -> None:
    trainer = make(ours, "causal", learning_rate=0.1)
    trainer.train()
    rows = trainer.eval_dataset
    before = trainer.predict(rows).predictions
    merged = ours.trainer(trainer.model.merge_and_unload(), ours.args())
    torch.testing.assert_close(torch.tensor(merged.predict(rows).predictions), torch.tensor(before))


# ------------------------------------------------------------------------------------------------ with other things


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(ours: Api, reentrant: bool) -> None:
    plain = make(ours, "causal", save_strategy="no", max_steps=2)
    plain.train()
    options = {"use_reentrant": reentrant}
    saving = make(
        ours,
        "causal",
        save_strategy="no",
        max_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs=options,
    )
    before = weights_of(saving.model)
    saving.train()
    assert any(not torch.equal(value, before[name]) for name, value in saving.model.state_dict().items())
    assert_same(weights_of(saving.model), weights_of(plain.model))


def test_noise_is_on_the_embeddings_inside_and_gone_after_training(ours: Api) -> None:
    quiet, noisy = make(ours, "causal"), make(ours, "causal", neftune_noise_alpha=5.0)
    embeddings = noisy.model.get_base_model().get_input_embeddings()
    hooks: list[int] = []

    class Count(ours.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            hooks.append(len(embeddings._forward_hooks))

    noisy.add_callback(Count)
    quiet.train()
    noisy.train()
    assert hooks == [1] * 4
    assert not embeddings._forward_hooks
    losses = [[entry["loss"] for entry in each.state.log_history if "loss" in entry] for each in (quiet, noisy)]
    assert losses[0] != losses[1]


def test_compiled(ours: Api) -> None:
    plain = make(ours, "plain module", save_strategy="no")
    plain.train()
    fast = make(ours, "plain module", torch_compile_backend="eager")
    fast.train()
    torch._dynamo.reset()
    assert_same(weights_of(fast.model), weights_of(plain.model))
    names = load_file(ours.output_dir / "checkpoint-2" / "adapter_model.safetensors").keys()
    assert names and not any("_orig_mod" in name for name in names)
