"""Models that save themselves: what we save `from_pretrained` reads, and what they save we read."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import huggingface_hub
    import transformers
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertForSequenceClassification,
        GPT2Config,
        GPT2LMHeadModel,
        MixtralConfig,
        MixtralForCausalLM,
        T5Config,
        T5ForConditionalGeneration,
    )

from ostinato.checkpoint.atomic import atomic_directory, verify
from ostinato.checkpoint.weights import hide_progress_bars, load_weights, save_model
from ostinato.core.errors import CheckpointError
from ostinato.core.random import set_seed

SMALL = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 16}
BERT = {**SMALL, "max_position_embeddings": 8}


def gpt2(**rest: Any) -> Any:
    settings = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16, "n_positions": 8}
    settings |= {"bos_token_id": 1, "eos_token_id": 1}
    return GPT2LMHeadModel(GPT2Config(**{**settings, **rest}))


def bert(**rest: Any) -> Any:
    return BertForMaskedLM(BertConfig(**{**BERT, **rest}))


def t5() -> Any:
    return T5ForConditionalGeneration(T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=16))


def mixtral() -> Any:
    return MixtralForCausalLM(MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=2))


def fresh(build: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return build()


def equal(left: Any, right: Any) -> bool:
    left, right = left.state_dict(), right.state_dict()
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left
    )


@pytest.mark.parametrize("build", [bert, gpt2, t5, mixtral], ids=lambda build: build.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_saved_by_us_read_by_both(tmp_path: Path, build: Any, dtype: torch.dtype):
    model, other = fresh(build, 1).to(dtype), fresh(build, 2).to(dtype)
    assert not equal(model, other)
    with atomic_directory(tmp_path / "checkpoint-1") as scratch:
        save_model(model, scratch)
    verify(tmp_path / "checkpoint-1")
    with hide_progress_bars():
        read = type(model).from_pretrained(tmp_path / "checkpoint-1", dtype=dtype)
    assert equal(model, read)
    load_weights(other, tmp_path / "checkpoint-1")
    assert equal(model, other)


@pytest.mark.parametrize("build", [bert, gpt2], ids=lambda build: build.__name__)
def test_ties_hold_after_loading(tmp_path: Path, build: Any):
    model, other = fresh(build, 1), fresh(build, 2)
    save_model(model, tmp_path)
    load_weights(other, tmp_path)
    assert other.get_output_embeddings().weight is other.get_input_embeddings().weight


def test_untied_by_configuration(tmp_path: Path):
    model, other = fresh(lambda: gpt2(tie_word_embeddings=False), 1), fresh(lambda: gpt2(tie_word_embeddings=False), 2)
    save_model(model, tmp_path)
    load_weights(other, tmp_path)
    assert equal(model, other)
    with pytest.raises(CheckpointError, match="tied in the model and different"):
        load_weights(gpt2(), tmp_path)


def test_a_tied_checkpoint_does_not_fill_an_untied_model(tmp_path: Path):
    save_model(gpt2(), tmp_path)
    with pytest.raises(CheckpointError, match=r"not in the checkpoint: lm_head\.weight"):
        load_weights(gpt2(tie_word_embeddings=False), tmp_path)


def test_shards_as_transformers_writes_them(tmp_path: Path):
    model, other = fresh(bert, 1), fresh(bert, 2)
    with hide_progress_bars():
        model.save_pretrained(tmp_path, max_shard_size="1KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    load_weights(other, tmp_path)
    assert equal(model, other)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: bert(num_hidden_layers=2), r"not in the checkpoint: bert\.encoder\.layer\.1"),
        (lambda: bert(hidden_size=4), "of another shape"),
        (lambda: bert(vocab_size=20), "of another shape"),
        (lambda: BertForSequenceClassification(BertConfig(**BERT)), r"not in the checkpoint: .*classifier\.weight"),
    ],
)
def test_another_architecture_is_refused(tmp_path: Path, build: Any, reason: str, capfd: pytest.CaptureFixture):
    save_model(bert(), tmp_path)
    other = build()
    before = {name: value.clone() for name, value in other.state_dict().items()}
    random = torch.get_rng_state()
    capfd.readouterr()
    with pytest.raises(CheckpointError, match=reason):
        load_weights(other, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random), "loading drew random numbers"
    assert capfd.readouterr().err == ""


def test_other_experts_are_refused(tmp_path: Path):
    save_model(mixtral(), tmp_path)
    other = MixtralForCausalLM(MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=3))
    with pytest.raises(CheckpointError, match="experts"):
        load_weights(other, tmp_path)


def test_saving_draws_no_random_numbers(tmp_path: Path):
    model = bert()
    set_seed(3)
    before = torch.get_rng_state()
    save_model(model, tmp_path)
    load_weights(model, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("hub_shown", [True, False])
def test_bars_are_silent_and_then_as_before(
    tmp_path: Path, capfd: pytest.CaptureFixture, shown: bool, hub_shown: bool
):
    bars, hub = transformers.utils.logging, huggingface_hub.utils
    before = bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()

    def put(shown: bool, hub_shown: bool) -> None:
        (bars.enable_progress_bar if shown else bars.disable_progress_bar)()
        (hub.enable_progress_bars if hub_shown else hub.disable_progress_bars)()

    try:
        put(shown, hub_shown)
        model = bert()
        capfd.readouterr()
        save_model(model, tmp_path)
        load_weights(model, tmp_path)
        assert "shards" not in capfd.readouterr().err
        assert (bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()) == (shown, hub_shown)
        with pytest.raises(RuntimeError), hide_progress_bars():
            raise RuntimeError
        assert (bars.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()) == (shown, hub_shown)
    finally:
        put(*before)


# ------------------------------------------------------------------------------------------------------------ adapters


@pytest.fixture(scope="module")
def peft() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("peft")


def lora(peft: Any, **rest: Any) -> Any:
    return peft.LoraConfig(**{"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True, **rest})


def adapted(peft: Any, seed: int, *adapters: str, **rest: Any) -> Any:
    """The same base every time, other adapters."""
    torch.manual_seed(0)
    base = gpt2()
    torch.manual_seed(seed)
    first, *others = adapters or ("default",)
    model = peft.get_peft_model(base, lora(peft, **rest), adapter_name=first)
    for name in others:
        model.add_adapter(name, lora(peft, r=3))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.normal_()
    return model


@pytest.mark.parametrize("adapters", [("default",), ("mine",), ("default", "other"), ("mine", "other")])
def test_adapters_come_back(tmp_path: Path, peft: Any, adapters: tuple[str, ...]):
    model = adapted(peft, 1, *adapters, modules_to_save=["ln_f"])
    other = adapted(peft, 2, *adapters, modules_to_save=["ln_f"])
    assert not equal(model, other)
    with atomic_directory(tmp_path / "checkpoint-1") as scratch:
        save_model(model, scratch)
    verify(tmp_path / "checkpoint-1")
    load_weights(other, tmp_path / "checkpoint-1")
    assert equal(model, other)
    assert not (tmp_path / "checkpoint-1" / "model.safetensors").exists()


def test_adapters_are_read_by_peft(tmp_path: Path, peft: Any):
    model = adapted(peft, 1)
    save_model(model, tmp_path)
    torch.manual_seed(0)
    assert equal(model, peft.PeftModel.from_pretrained(gpt2(), tmp_path))


@pytest.mark.parametrize(
    ("saved", "present", "reason"),
    [
        ({"r": 2}, {"r": 4}, "of another shape"),
        ({}, {"target_modules": ["c_attn", "c_fc"]}, "not in the checkpoint: .*c_fc"),
        ({"target_modules": ["c_attn", "c_fc"]}, {}, "not in the model: .*c_fc"),
    ],
)
def test_other_adapters_are_refused(tmp_path: Path, peft: Any, saved: dict, present: dict, reason: str):
    save_model(adapted(peft, 1, **saved), tmp_path)
    other = adapted(peft, 2, **present)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointError, match=reason):
        load_weights(other, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_missing_adapter_is_named(tmp_path: Path, peft: Any):
    save_model(adapted(peft, 1), tmp_path)
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors"):
        load_weights(adapted(peft, 1, "default", "other"), tmp_path)


def test_adapters_inside_a_transformers_model(tmp_path: Path, peft: Any):
    models = []
    for seed in (1, 2):
        torch.manual_seed(0)
        model = gpt2()
        model.add_adapter(lora(peft))
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.normal_()
        models.append(model)
    save_model(models[0], tmp_path)
    assert "adapter_model.safetensors" in os.listdir(tmp_path)
    load_weights(models[1], tmp_path)
    assert equal(*models)
