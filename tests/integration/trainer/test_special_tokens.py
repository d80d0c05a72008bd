"""The tokenizer's special tokens in the model's configs: what is said, what is left alone, what leaves no trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from ostinato.core.notices import forget_notices
from ostinato.engine.special_tokens import align_special_tokens
from tests.support import tiny
from tests.support.apis import Api, load_library

pytest.importorskip("transformers", reason="the tokenizers are its own")
hf = load_library("transformers")

IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


@pytest.fixture(autouse=True)
def fresh_notices() -> None:
    forget_notices()


def make_tokenizer() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token, tokenizer.pad_token = "w5", "w5"
    return tokenizer


def make_classifier() -> Any:
    config = hf.GPT2Config(
        vocab_size=tiny.VOCAB,
        n_positions=32,
        n_embd=16,
        n_layer=1,
        n_head=2,
        num_labels=3,
        bos_token_id=0,
        eos_token_id=0,
    )
    return tiny.seeded(hf.GPT2ForSequenceClassification, config)


def make_trainer(ours: Api, **arguments: Any) -> Any:
    rows = tiny.ragged_classification_rows()
    args = ours.args(max_steps=2, per_device_train_batch_size=4, **arguments)
    return ours.trainer(
        make_classifier(), args, train_dataset=rows, eval_dataset=rows[:8], processing_class=make_tokenizer()
    )


def test_the_change_is_said_once(ours: Api, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer(ours)
    trainer.train()
    trainer.train()
    make_trainer(ours).train()
    line = "ostinato: special tokens: the model's config took eos_token_id=5, pad_token_id=5 from the tokenizer\n"
    assert capfd.readouterr().err.count(line) == 1


def test_both_configs_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    align_special_tokens(tiny.gpt2(), make_tokenizer())
    told = capfd.readouterr().err
    assert told == (
        "ostinato: special tokens: the model's config and generation config took eos_token_id=5, pad_token_id=5 "
        "from the tokenizer\n"
    )
    align_special_tokens(tiny.bert(), None)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "look",
    [
        lambda trainer: trainer.rehearse(),
        lambda trainer: trainer.verify_resume(steps=1),
        lambda trainer: trainer.explain(),
    ],
    ids=["rehearse", "verify_resume", "explain"],
)
def test_what_is_tried_is_the_model_that_will_be_trained_and_leaves_no_trace(ours: Api, look: Any) -> None:
    """Without its pad token the model would refuse the batch."""
    trainer = make_trainer(ours)
    config = trainer.model.config
    found = look(trainer)
    assert [getattr(config, name) for name in IDS] == [None, 0, 0]
    assert not getattr(found, "findings", ())


def test_rehearsing_leaves_no_trace_in_the_generation_config(ours: Api) -> None:
    model = tiny.gpt2()
    trainer = ours.trainer(
        model, ours.args(max_steps=1), train_dataset=tiny.language_rows(), processing_class=make_tokenizer()
    )
    trainer.rehearse()
    trainer.explain()
    assert [getattr(model.generation_config, name) for name in IDS] == [None, 0, 0]


def test_a_model_from_model_init_takes_them(ours: Api) -> None:
    trainer = ours.Trainer(
        args=ours.args(max_steps=1),
        model_init=make_classifier,
        train_dataset=tiny.ragged_classification_rows(),
        processing_class=make_tokenizer(),
    )
    trainer.train()
    assert trainer.model.config.pad_token_id == 5


@pytest.mark.parametrize("config", [None, {"pad_token_id": 1}, SimpleNamespace(pad_token_id=1)], ids=str)
def test_configs_of_other_kinds_are_left_alone(config: Any) -> None:
    """transformers fails on them."""
    model = nn.Linear(1, 1)
    model.config = config
    before = repr(config)
    align_special_tokens(model, make_tokenizer())
    assert repr(config) == before


def test_several_text_configs_are_left_alone_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    """transformers fails on them: nothing tells which of them the tokenizer belongs to."""

    class Several(SimpleNamespace):
        def get_text_config(self) -> Any:
            raise ValueError("Multiple valid text configs were found")

    model = nn.Linear(1, 1)
    model.config, model.generation_config = Several(pad_token_id=1), SimpleNamespace(pad_token_id=1)
    align_special_tokens(model, make_tokenizer())
    assert (model.config.pad_token_id, model.generation_config.pad_token_id) == (1, 1)
    assert "several of them are for text" in capfd.readouterr().err


def test_a_tuple_of_ends_is_several_ends() -> None:
    model = tiny.gpt2()
    model.generation_config.eos_token_id = (0, 9)
    align_special_tokens(model, make_tokenizer())
    assert model.generation_config.eos_token_id == [5, 0, 9]


@pytest.mark.parametrize("processing_class", [None, object(), SimpleNamespace(pad_token_id=5, eos_token_id=5)])
def test_only_tokenizers_of_transformers_are_asked(processing_class: Any) -> None:
    model = make_classifier()
    align_special_tokens(model, processing_class)
    assert model.config.pad_token_id is None
