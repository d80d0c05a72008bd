"""`split_by_length`: the same rows, the same gradient, the same steps, without the padding."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import ModelOutputError, Trainer, TrainerCallback, TrainingArguments
from ostinato.core.notices import forget_notices
from tests.support import tiny

LENGTHS = [2, 3, 5, 8, 13, 40, 90]
VOCAB = tiny.VOCAB


def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Every list as wide as the longest; labels with -100, everything else with 0."""
    batch = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(first, list):
            width, filler = max(map(len, values)), -100 if name == "labels" else 0
            values = [value + [filler] * (width - len(value)) for value in values]
        batch[name] = torch.tensor(values)
    return batch


def rows_of(kind: str, count: int = 48) -> list[dict[str, Any]]:
    chance = random.Random(1)
    found = []
    for number in range(count):
        ids = [chance.randrange(1, VOCAB) for _ in range(chance.choice(LENGTHS))]
        row = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        if kind == "rows":
            row["labels"] = number % 3
        elif kind == "tokens":
            row["labels"] = [token % 3 if place % 4 else -100 for place, token in enumerate(ids)]
        elif kind == "masked":
            row["labels"] = [token if place % 5 == 0 else -100 for place, token in enumerate(ids)]
        elif kind == "pairs":
            row["labels"] = [chance.randrange(1, VOCAB) for _ in range(chance.choice(LENGTHS))]
        else:
            row["labels"] = list(ids)
        found.append(row)
    return found


class OwnMean(Trainer):
    """A user's own loss: a mean over the targets, computed from logits."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten(), ignore_index=-100)
        return (loss, outputs) if return_outputs else loss


class Remember(TrainerCallback):
    """The gradient of every step, and the rows of every micro-batch."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.gradients.append(torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None]))


CASES: dict[str, tuple[Callable[[], Any], str, type[Trainer]]] = {
    "classification": (lambda: tiny.bert(dropout=0.0, max_position_embeddings=128), "rows", Trainer),
    "token classification": (
        lambda: tiny.bert("TokenClassification", dropout=0.0, max_position_embeddings=128),
        "tokens",
        Trainer,
    ),
    "masked LM": (lambda: tiny.bert("MaskedLM", dropout=0.0, max_position_embeddings=128), "masked", Trainer),
    "causal LM": (lambda: _gpt2(), "causal", Trainer),
    "causal LM that shifts without saying so": (lambda: _gpt2(loss_type=None), "causal", Trainer),
    "seq2seq": (lambda: tiny.t5(dropout=0.0), "pairs", Trainer),
    "an own mean": (
        lambda: tiny.bert("TokenClassification", dropout=0.0, max_position_embeddings=128),
        "tokens",
        OwnMean,
    ),
}


def _gpt2(**settings: Any) -> Any:
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel

    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=128, **off)
    model = tiny.seeded(GPT2LMHeadModel, config)
    model.loss_type = settings.get("loss_type", "ForCausalLM")
    return model


def train(tmp_path: Any, case: str, *, split: bool, **given: Any) -> tuple[Any, Remember]:
    build, kind, trainer = CASES[case]
    return _train(tmp_path, build(), rows_of(kind), trainer, split=split, **given)


def _train(tmp_path: Any, model: Any, rows: Any, kind: type[Trainer] = Trainer, *, split: bool, **given: Any) -> Any:
    settings = {"per_device_train_batch_size": 8, "max_steps": 3, "logging_steps": 1, "save_strategy": "no", **given}
    args = TrainingArguments(str(tmp_path), use_cpu=True, split_by_length=split, max_grad_norm=0, **settings)
    remember = Remember()
    trainer = kind(model, args, train_dataset=rows, data_collator=pad, callbacks=[remember])
    trainer.train()
    return trainer, remember


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_padded_batch(case: str, accumulation: int, tmp_path) -> None:
    pytest.importorskip("transformers")
    whole, padded = train(tmp_path, case, split=False, gradient_accumulation_steps=accumulation, max_steps=1)
    cut, split = train(tmp_path, case, split=True, gradient_accumulation_steps=accumulation, max_steps=1)
    difference = torch.linalg.vector_norm(split.gradients[0] - padded.gradients[0])
    assert difference <= 1e-6 * torch.linalg.vector_norm(padded.gradients[0])
    assert cut.state.log_history[0]["loss"] == pytest.approx(whole.state.log_history[0]["loss"], rel=1e-6)


@pytest.mark.parametrize("given", [{}, {"gradient_accumulation_steps": 2}, {"dataloader_num_workers": 2}])
def test_losses_steps_and_epochs_are_those_of_the_padded_run(given: dict[str, Any], tmp_path) -> None:
    pytest.importorskip("transformers")
    settings = {"max_steps": -1, "num_train_epochs": 2, **given}
    whole, _ = train(tmp_path, "classification", split=False, **settings)
    cut, _ = train(tmp_path, "classification", split=True, **settings)
    expected, found = whole.state.log_history, cut.state.log_history
    assert [(one["step"], one["epoch"]) for one in found] == [(one["step"], one["epoch"]) for one in expected]
    for one, other in zip(found[:-1], expected[:-1], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    assert cut.state.max_steps == whole.state.max_steps == cut.state.global_step


def test_every_row_is_seen_once_and_hardly_anything_is_padding(tmp_path) -> None:
    seen: list[list[int]] = []

    class Sees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> dict[str, Any]:
            if self.training:
                seen.append([input_ids.numel(), int(attention_mask.sum()), len(labels)])
            real = (input_ids * attention_mask).sum(1) * self.weight / 1000
            return {"loss": (real - labels).square().mean(), "logits": real}

    _train(tmp_path, Sees(), rows_of("rows"), split=True, max_steps=6)
    assert sum(rows for _, _, rows in seen) == 48
    assert sum(real for _, real, _ in seen) == sum(len(row["input_ids"]) for row in rows_of("rows"))
    assert sum(real for _, real, _ in seen) > 0.7 * sum(size for size, _, _ in seen)


def test_no_micro_batch_is_larger_than_the_batch_that_was_asked_for(tmp_path) -> None:
    sizes: list[int] = []

    class Equal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            if self.training:
                sizes.append(len(x))
            return {"loss": (x @ self.weight - labels).square().mean()}

    _train(tmp_path, Equal(), tiny.regression_rows(32), split=True, gradient_accumulation_steps=4, max_steps=1)
    assert sizes == [8, 8, 8, 8]


# ------------------------------------------------------------------------------------------------------ rows that meet


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(VOCAB, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> dict[str, Any]:
        pooled = (self.embedding(input_ids) * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = self.head(self.norm(pooled))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Contrastive(nn.Module):
    """Each row against all others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, 8), nn.Linear(8, 8)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, Any]:
        pooled = (self.embedding(input_ids) * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        scores = pooled @ self.head(pooled).T
        return {"loss": nn.functional.cross_entropy(scores, torch.arange(len(scores))), "logits": scores}


@pytest.mark.parametrize(("build", "reason"), [(Normed, "batch norm in norm"), (Contrastive, "compares rows")])
def test_a_model_whose_rows_meet_is_refused_before_the_first_step(build, reason, tmp_path) -> None:
    model = tiny.seeded(build)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ModelOutputError, match="would change the gradient") as refusal:
        _train(tmp_path, model, rows_of("rows"), split=True)
    assert reason in refusal.value.why and "group_by_length" in refusal.value.fix
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_dropout_is_no_reason_to_refuse(tmp_path) -> None:
    pytest.importorskip("transformers")
    trainer, _ = _train(tmp_path, tiny.bert(dropout=0.3, max_position_embeddings=128), rows_of("rows"), split=True)
    assert trainer.state.global_step == 3


def test_the_check_leaves_no_trace(tmp_path, monkeypatch) -> None:
    """With dropout every random number counts: a run whose check is left out must end the same."""
    pytest.importorskip("transformers")
    ends = []
    for checked in (False, True):
        monkeypatch.setattr(Trainer, "_split_is_checked", not checked)
        model = tiny.bert(dropout=0.3, max_position_embeddings=128)
        trainer, _ = _train(tmp_path, model, rows_of("rows"), split=True)
        ends.append(torch.cat([value.flatten() for value in trainer.model.state_dict().values()]))
    assert torch.equal(*ends)


def test_tokens_are_counted_as_in_the_padded_run_without_their_padding(tmp_path) -> None:
    pytest.importorskip("transformers")
    trainer, _ = train(
        tmp_path, "classification", split=True, max_steps=6, include_num_input_tokens_seen="non_padding"
    )
    assert trainer.state.num_input_tokens_seen == sum(len(row["input_ids"]) for row in rows_of("rows"))


def test_a_failure_names_the_row_of_the_data_set(tmp_path) -> None:
    rows = rows_of("rows", 16)
    rows[5]["labels"] = "three"
    with pytest.raises(Exception, match=r"three|labels") as failure:
        _train(tmp_path, Contrastive(), rows, split=True, per_device_train_batch_size=16)
    assert "row" in str(failure.value) + str(getattr(failure.value, "__notes__", ""))


def test_it_does_not_go_with_packing() -> None:
    with pytest.raises(ValueError, match="split_by_length=True with packing=True"):
        TrainingArguments("out", use_cpu=True, split_by_length=True, packing=True)


# -------------------------------------------------------------------------------------------------- what it would save


def test_without_it_one_line_says_what_it_would_save(tmp_path, capfd) -> None:
    forget_notices()
    for _ in range(2):
        _train(tmp_path, Contrastive(), rows_of("rows"), split=False)
    lines = [line for line in capfd.readouterr().err.splitlines() if "padding" in line]
    assert len(lines) == 1
    assert re.fullmatch(
        r"ostinato: in the first batch \d+ % of the tokens are padding: split_by_length=True would save \d+ % of the "
        r"tokens",
        lines[0],
    )


def test_nothing_is_said_where_little_would_be_saved(tmp_path, capfd) -> None:
    forget_notices()
    rows = [
        {**row, "input_ids": [1] * (20 + n % 3), "attention_mask": [1] * (20 + n % 3)}
        for n, row in enumerate(rows_of("rows"))
    ]
    _train(tmp_path, Contrastive(), rows, split=False)
    assert "padding" not in capfd.readouterr().err
