"""The same model on the same data: both libraries take the same steps, bit for bit.

A model's loss is compared at one micro-batch per update and, where transformers weighs micro-batches correctly, at
several.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from tests.support import tiny
from tests.support.parity import check_parity, run_both
from tests.support.records import assert_same_run

pytest.importorskip("transformers")


@pytest.mark.parametrize("output", ["dict", "tuple"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_regression(output: str, dropout: float) -> None:
    def script(api):
        model = tiny.regression(output=output, dropout=dropout)
        api.fit(model, tiny.regression_rows(), num_train_epochs=3, per_device_train_batch_size=4)

    _, ours = check_parity(script)
    assert len(ours.logged("loss")) == 18


def test_model_output_with_dropout() -> None:
    check_parity(lambda api: _fit(api, tiny.bert(), tiny.classification_rows(), per_device_train_batch_size=4))


def test_token_classification_with_padding() -> None:
    def script(api):
        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        model = tiny.bert("TokenClassification")
        _fit(api, model, tiny.token_rows(), trainer={"data_collator": collator}, per_device_train_batch_size=4)

    check_parity(script)


@pytest.mark.parametrize("build", [tiny.gpt2, tiny.llama], ids=["gpt2", "llama"])
@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (2, 4), (3, 4)])
def test_language_model_with_ragged_labels(build, batch: int, accumulation: int) -> None:
    """The number of labels differs between micro-batches; 24 rows in threes leave no rest, in eights neither."""

    def script(api):
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        _fit(api, build(), tiny.language_rows(), **sizes)

    check_parity(script)


def test_language_model_with_a_partial_batch_and_a_partial_update() -> None:
    """23 rows in batches of 2 and updates of 4: the last batch has one row, the last update three micro-batches."""

    def script(api):
        _fit(api, tiny.llama(), tiny.language_rows(23), per_device_train_batch_size=2, gradient_accumulation_steps=4)

    _, ours = check_parity(script)
    assert ours.state["global_step"] == 6


@pytest.mark.parametrize("use_cache", [False, True])
def test_cache_of_keys_and_values(use_cache: bool) -> None:
    """`use_cache`, off by default, reaches the model's configuration: a cache nobody reads costs memory, and with
    dropout it changes the last bit of the gradients.
    """

    def script(api):
        trainer = api.trainer(tiny.gpt2(), api.args(use_cache=use_cache, num_train_epochs=1))
        trainer.train_dataset = tiny.language_rows()
        api.train(trainer)
        return trainer.model.config.use_cache

    theirs, _ = check_parity(script)
    assert theirs.result is use_cache


def test_sequence_to_sequence() -> None:
    check_parity(lambda api: _fit(api, tiny.t5(), tiny.translation_rows(), per_device_train_batch_size=4))


def test_tied_weights() -> None:
    """A plain module whose head is its embedding: one parameter, trained once per step, saved under both names."""

    def script(api):
        trainer = _fit(api, tiny.tied(), tiny.language_rows(), per_device_train_batch_size=4)
        return trainer.model.head.weight is trainer.model.embedding.weight

    _, ours = check_parity(script)
    assert ours.result is True


@pytest.mark.parametrize("accumulation", [2, 3])
def test_mean_loss_with_equal_micro_batches(accumulation: int) -> None:
    """A mean over micro-batches of one size is the mean of their means: here both are right."""

    def script(api):
        sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation}
        _fit(api, tiny.regression(dropout=0.2), tiny.regression_rows(), **sizes)

    check_parity(script)


# ------------------------------------------------------------------------------------ where transformers is mistaken


def test_gpt2_without_a_loss_type() -> None:
    """transformers is wrong: it divides by the number of labels before the shift, although the first label of a row
    is never predicted, so loss and gradient are too small whenever that label counts. Ours is the loss of the repaired
    model (`config.loss_type = "ForCausalLM"`), on which both agree.
    """

    def script(loss_type):
        return lambda api: _fit(api, tiny.gpt2(loss_type=loss_type, dropout=0.0), tiny.language_rows())

    theirs, ours = run_both(script(None))
    their_repaired, our_repaired = run_both(script("ForCausalLM"))
    assert_same_run(their_repaired, our_repaired)
    assert_same_run(their_repaired, ours)
    assert theirs.logged("loss")[0] < 0.99 * their_repaired.logged("loss")[0]


SIXTEEN_ROWS = [(16, 1), (4, 4), (2, 8)]


@pytest.mark.parametrize(
    ("build", "rows"),
    [
        (lambda: tiny.bert(dropout=0.0), tiny.classification_rows),
        (lambda: tiny.t5(dropout=0.0), tiny.translation_rows),
        (tiny.deaf, tiny.language_rows),
    ],
    ids=["bert", "t5", "module with **kwargs"],
)
def test_model_that_takes_but_ignores_the_number_of_items(build, rows) -> None:
    """transformers is wrong: a `forward(**kwargs)` counts as using `num_items_in_batch`, so a mean loss is summed over
    the micro-batches, and loss and gradient grow with their number. Ours do not depend on it.
    """
    first = {}
    for batch, accumulation in SIXTEEN_ROWS:
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        theirs, ours = run_both(partial(_fit_32_rows, build=build, rows=rows, **sizes))
        if accumulation == 1:
            assert_same_run(theirs, ours)
        first[accumulation] = {r.library: (r.logged("loss")[0], r.logged("grad_norm")[0]) for r in (theirs, ours)}
    whole = first[1]["ostinato"]
    for accumulation in (4, 8):
        assert first[accumulation]["ostinato"] == pytest.approx(whole, rel=1e-5)
        assert first[accumulation]["transformers"][0] == pytest.approx(accumulation * whole[0], rel=0.1)


def test_mean_loss_with_unequal_micro_batches() -> None:
    """transformers takes the mean of the means: 10 rows as 8 + 2 weigh the last two rows four times as much as the
    others. Ours is the gradient of the uncut batch.
    """

    def cut(batch, accumulation):
        def script(api):
            sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
            _fit(api, tiny.regression(), tiny.regression_rows(10), num_train_epochs=1, optim="sgd", **sizes)

        return run_both(script)

    theirs, ours = cut(8, 2)
    their_whole, our_whole = cut(10, 1)
    assert_same_run(their_whole, our_whole)
    for key in ("loss", "grad_norm"):
        assert ours.logged(key) == pytest.approx(our_whole.logged(key), rel=1e-6)
        assert theirs.logged(key) != pytest.approx(our_whole.logged(key), rel=1e-2)
    for name, weight in ours.weights.items():
        assert torch.allclose(weight, our_whole.weights[name], rtol=1e-5, atol=1e-7), name


def _fit(api, model, data, **arguments):
    return api.fit(model, data, **{"num_train_epochs": 2, **arguments})


def _fit_32_rows(api, *, build, rows, **sizes):
    return api.fit(build(), rows(32), num_train_epochs=1, **sizes)


# --------------------------------------------------------------------------------------------------- quantized models


class Quantizer:
    """As much of transformers' quantizers as decides whether a model can be trained."""

    def __init__(self, *, trainable: bool = False, qat: bool = False) -> None:
        self.is_trainable, self.is_qat_trainable, self.is_compileable = trainable, qat, False
        self.quantization_config = SimpleNamespace(quant_method="gptq")


def quantized(**marks) -> torch.nn.Module:
    model = tiny.bert()
    for name, value in {"is_quantized": True, "hf_quantizer": Quantizer(), **marks}.items():
        setattr(model, name, value)
    return model


def adapted(**marks) -> torch.nn.Module:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(quantized(**marks), peft.LoraConfig(target_modules=["query"]))


QUANTIZED = {
    "no adapter": (quantized, False),
    "no adapter, whatever the layers can": (lambda: quantized(hf_quantizer=Quantizer(trainable=True)), False),
    "without a quantizer": (lambda: quantized(hf_quantizer=None), False),
    "trained as quantized": (lambda: quantized(hf_quantizer=Quantizer(trainable=True, qat=True)), True),
    "trained as quantized, which the layers cannot": (lambda: quantized(hf_quantizer=Quantizer(qat=True)), False),
    "not any more": (lambda: quantized(is_quantized=False), True),
    "with an adapter": (lambda: adapted(hf_quantizer=Quantizer(trainable=True)), True),
    "with an adapter, which the layers do not support": (adapted, False),
    "with an adapter of its own": (lambda: quantized(_hf_peft_config_loaded=True), True),
    "compiled": (lambda: torch.compile(adapted(hf_quantizer=Quantizer(trainable=True)), backend="eager"), False),
}


@pytest.mark.parametrize("case", QUANTIZED)
def test_a_quantized_model_is_refused_without_an_adapter(api, case: str) -> None:
    build, is_trainable = QUANTIZED[case]
    model, args = build(), api.args(max_steps=1)
    with nullcontext() if is_trainable else pytest.raises(ValueError, match="quantized"):
        api.Trainer(model=model, args=args, train_dataset=tiny.classification_rows())


def test_a_quantized_model_may_be_evaluated(ours) -> None:
    """transformers refuses to make a trainer of it at all."""
    rows = tiny.classification_rows()
    trainer = ours.trainer(quantized(), ours.args(max_steps=1), eval_dataset=rows)
    assert trainer.evaluate()["eval_loss"] > 0
    trainer.train_dataset = rows
    with pytest.raises(ValueError, match="quantized"):
        trainer.train()
