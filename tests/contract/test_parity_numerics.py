"""Precision, optimizers, schedules, clipping, noise: the same arithmetic in both libraries, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support import tiny
from tests.support.parity import check_parity

pytest.importorskip("transformers")

EPOCH_OF_SIX = {"num_train_epochs": 1, "per_device_train_batch_size": 4}
TWO_EPOCHS = {"num_train_epochs": 2, "per_device_train_batch_size": 4}


def squared_error(outputs, labels, num_items_in_batch=None):
    """A `compute_loss_func` that uses the number of items it is given."""
    errors = (outputs["logits"] - labels).square().sum()
    return errors / num_items_in_batch


# --------------------------------------------------------------------------------------------------------- precision


def test_bf16_with_bert() -> None:
    check_parity(lambda api: api.fit(tiny.bert(), tiny.classification_rows(), bf16=True, **TWO_EPOCHS))


def test_bf16_with_a_plain_module() -> None:
    check_parity(lambda api: api.fit(tiny.regression(dropout=0.2), tiny.regression_rows(), bf16=True, **TWO_EPOCHS))


def test_bf16_with_a_language_model_and_accumulation() -> None:
    def script(api):
        api.fit(tiny.llama(), tiny.language_rows(), bf16=True, gradient_accumulation_steps=2, **TWO_EPOCHS)

    check_parity(script)


@pytest.mark.parametrize("bf16", [False, True])
def test_loss_function_under_autocast(bf16: bool) -> None:
    """Is the user's loss function computed inside or outside of autocast? Where transformers does."""
    seen = {}

    def script(api):
        def loss(outputs, labels, num_items_in_batch=None):
            seen[api.name] = (outputs["logits"].dtype, torch.is_autocast_enabled("cpu"))
            return squared_error(outputs, labels, num_items_in_batch)

        trainer = {"compute_loss_func": loss}
        api.fit(tiny.regression(), tiny.regression_rows(), bf16=bf16, trainer=trainer, **EPOCH_OF_SIX)

    check_parity(script)
    assert seen["transformers"] == seen["ostinato"]


def test_bf16_evaluation_returns_the_same_numbers() -> None:
    def script(api):
        trainer = {"eval_dataset": tiny.regression_rows(10)}
        built = api.fit(tiny.regression(), tiny.regression_rows(), bf16=True, trainer=trainer, **EPOCH_OF_SIX)
        prediction = built.predict(tiny.regression_rows(10))
        return prediction.predictions, prediction.label_ids, prediction.metrics, built.evaluate()

    check_parity(script)


def test_weights_in_bfloat16_are_left_alone_without_bf16() -> None:
    """Only that the forward pass computes in the model's own type; what becomes of the updates is another matter."""

    def script(api):
        model = tiny.regression().to(torch.bfloat16)
        trainer = api.trainer(model, api.args(), eval_dataset=_rows_as_bfloat16())
        return trainer.predict(_rows_as_bfloat16()).metrics

    check_parity(script)


def _rows_as_bfloat16():
    return [
        {
            "x": torch.tensor(row["x"], dtype=torch.bfloat16),
            "labels": torch.tensor(row["labels"], dtype=torch.bfloat16),
        }
        for row in tiny.regression_rows(8)
    ]


# -------------------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize("name", ["adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"])
def test_optimizer(name: str) -> None:
    def script(api):
        api.fit(tiny.regression(), tiny.regression_rows(), optim=name, weight_decay=0.1, **TWO_EPOCHS)

    check_parity(script)


@pytest.mark.parametrize(
    ("name", "options"),
    [("sgd", "momentum=0.9,nesterov=true"), ("rmsprop", "alpha=0.9, momentum=0.5"), ("adagrad", "lr_decay=0.1")],
)
def test_optimizer_with_options(name: str, options: str) -> None:
    def script(api):
        trainer = api.trainer(tiny.regression(), api.args(optim=name, optim_args=options, **EPOCH_OF_SIX))
        try:
            optimizer = trainer.create_optimizer()
        except (TypeError, ValueError) as error:
            return type(error).__name__
        return type(optimizer).__name__, {k: v for k, v in optimizer.defaults.items() if k != "lr"}

    check_parity(script)


def test_adam_numbers() -> None:
    numbers = {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "learning_rate": 3e-3}
    check_parity(lambda api: api.fit(tiny.regression(), tiny.regression_rows(), **numbers, **TWO_EPOCHS))


def test_weight_decay_spares_biases_and_norms() -> None:
    def script(api):
        trainer = api.fit(tiny.bert(), tiny.classification_rows(), weight_decay=0.3, **EPOCH_OF_SIX)
        names = {parameter: name for name, parameter in trainer.model.named_parameters()}
        groups = [
            (group["weight_decay"], [names[parameter] for parameter in group["params"]])
            for group in trainer.optimizer.param_groups
        ]
        return groups, trainer.get_decay_parameter_names(trainer.model)

    theirs, _ = check_parity(script)
    (decay, _), (spared, names) = theirs.result[0]
    assert (decay, spared) == (0.3, 0.0)
    assert all("bias" in name or "LayerNorm" in name for name in names)


def test_frozen_parameters_stay() -> None:
    def script(api):
        model = tiny.bert()
        for parameter in model.bert.embeddings.parameters():
            parameter.requires_grad_(False)
        before = model.bert.embeddings.word_embeddings.weight.clone()
        trainer = api.fit(model, tiny.classification_rows(), weight_decay=0.1, **EPOCH_OF_SIX)
        numbers = trainer.get_num_trainable_parameters(), trainer.get_learning_rates()
        return torch.equal(before, trainer.model.bert.embeddings.word_embeddings.weight.cpu()), numbers

    _, ours = check_parity(script)
    assert ours.result[0] is True


def test_own_optimizer_and_schedule() -> None:
    def script(api):
        model = tiny.regression()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.8**step)
        api.fit(model, tiny.regression_rows(), trainer={"optimizers": (optimizer, schedule)}, **TWO_EPOCHS)

    theirs, _ = check_parity(script)
    assert theirs.logged("learning_rate")[:3] == pytest.approx([0.05, 0.04, 0.032])


def test_own_optimizer_with_the_stock_schedule() -> None:
    def script(api):
        model = tiny.regression()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        api.fit(model, tiny.regression_rows(), trainer={"optimizers": (optimizer, None)}, warmup_steps=2, **TWO_EPOCHS)

    check_parity(script)


def test_optimizer_class_and_arguments() -> None:
    def script(api):
        chosen = (torch.optim.NAdam, {"lr": 0.02, "betas": (0.8, 0.9)})
        api.fit(tiny.regression(), tiny.regression_rows(), trainer={"optimizer_cls_and_kwargs": chosen}, **TWO_EPOCHS)

    check_parity(script)


# --------------------------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize("warmup", [0, 3, 0.25])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", None),
        ("cosine", None),
        ("cosine_with_restarts", {"num_cycles": 2}),
        ("polynomial", {"power": 2.0, "lr_end": 1e-4}),
        ("constant", None),
        ("constant_with_warmup", None),
        ("inverse_sqrt", None),
        ("cosine_with_min_lr", {"min_lr": 1e-3}),
        ("cosine_warmup_with_min_lr", {"min_lr": 1e-3}),
        ("warmup_stable_decay", {"num_decay_steps": 4}),
    ],
)
def test_schedule(name: str, options: dict | None, warmup: float) -> None:
    def script(api):
        schedule = {"lr_scheduler_type": name, "lr_scheduler_kwargs": options, "warmup_steps": warmup}
        api.fit(tiny.regression(), tiny.regression_rows(16), **schedule, **TWO_EPOCHS)

    check_parity(script)


def test_schedule_that_follows_the_evaluation() -> None:
    """The evaluation loss on labels of the opposite sign gets worse, so the plateau schedule lowers the rate."""

    def script(api):
        against = [{"x": row["x"], "labels": -row["labels"]} for row in tiny.regression_rows(8)]
        plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5}}
        evaluation = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "eval_loss"}
        trainer = {"eval_dataset": against}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **plateau, **evaluation, **TWO_EPOCHS)

    theirs, _ = check_parity(script)
    assert theirs.logged("learning_rate")[-1] < 0.01


# ---------------------------------------------------------------------------------------- clipping, smoothing, noise


@pytest.mark.parametrize("limit", [0.0, 0.05, 1.0, 100.0])
def test_gradient_clipping(limit: float) -> None:
    check_parity(lambda api: api.fit(tiny.bert(), tiny.classification_rows(), max_grad_norm=limit, **EPOCH_OF_SIX))


@pytest.mark.parametrize("build", [tiny.bert, lambda: tiny.bert("TokenClassification")], ids=["sequence", "token"])
def test_label_smoothing_with_bert(build) -> None:
    def script(api):
        model = build()
        if type(model).__name__ == "BertForTokenClassification":
            collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
            rows, trainer = tiny.token_rows(), {"data_collator": collator}
        else:
            rows, trainer = tiny.classification_rows(), {}
        api.fit(model, rows, trainer=trainer, label_smoothing_factor=0.1, **TWO_EPOCHS)

    check_parity(script)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_label_smoothing_with_a_causal_language_model(accumulation: int) -> None:
    def script(api):
        accumulate = {"gradient_accumulation_steps": accumulation}
        api.fit(tiny.llama(), tiny.language_rows(), label_smoothing_factor=0.1, **accumulate, **TWO_EPOCHS)

    check_parity(script)


def test_label_smoothing_with_a_sequence_to_sequence_model() -> None:
    def script(api):
        model = tiny.t5()
        collator = api.DataCollatorForSeq2Seq(tiny.tokenizer(), model=model)  # it adds what the decoder reads
        trainer = {"data_collator": collator}
        api.fit(model, tiny.translation_rows(), trainer=trainer, label_smoothing_factor=0.1, **EPOCH_OF_SIX)

    check_parity(script)


@pytest.mark.parametrize(
    ("build", "rows"),
    [(tiny.llama, tiny.language_rows), (tiny.bert, tiny.classification_rows)],
    ids=["llama", "bert"],
)
def test_noise_on_the_embeddings(build, rows) -> None:
    """NEFTune: the noise is drawn where transformers draws it, and is gone after training."""

    def script(api):
        trainer = api.fit(build(), rows(), neftune_noise_alpha=5.0, **TWO_EPOCHS)
        trainer.model.train()
        ids = torch.tensor([rows(1)[0]["input_ids"]], device=trainer.model.device)
        embed = trainer.model.get_input_embeddings()
        return torch.equal(embed(ids), nn.functional.embedding(ids, embed.weight, embed.padding_idx))

    _, ours = check_parity(script)
    assert ours.result is True


@pytest.mark.parametrize("options", [None, {"use_reentrant": False}, {"use_reentrant": True}])
def test_gradient_checkpointing(options: dict | None) -> None:
    def script(api):
        checkpointing = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": options}
        api.fit(tiny.bert(), tiny.classification_rows(), **checkpointing, **EPOCH_OF_SIX)

    check_parity(script)


def test_gradient_checkpointing_leaves_the_numbers_alone(api) -> None:
    plain = api.fit(tiny.bert(), tiny.classification_rows(), **EPOCH_OF_SIX).state.log_history[:-1]
    api.set_seed(42)
    saving = api.fit(tiny.bert(), tiny.classification_rows(), gradient_checkpointing=True, **EPOCH_OF_SIX)
    assert saving.state.log_history[:-1] == plain


def test_label_smoothing_with_several_labels_in_a_row() -> None:
    """It has no effect: the model's own loss is trained on."""
    rows = [{**row, "labels": [float(row["labels"] == one) for one in range(3)]} for row in tiny.classification_rows()]

    def script(api):
        trainer = api.fit(
            tiny.bert(problem_type="multi_label_classification"), rows, label_smoothing_factor=0.1, **EPOCH_OF_SIX
        )
        return trainer.label_smoother

    theirs, _ = check_parity(script)
    assert theirs.result is None
