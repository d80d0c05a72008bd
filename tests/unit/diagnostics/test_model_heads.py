"""What the heads of transformers' models want: found where it is wrong, and no false alarm anywhere else."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.diagnostics.context import FailureContext
from ostinato.diagnostics.model_heads import find_certain_mistake, find_mistake
from tests.support import tiny
from tests.support.apis import load_library

pytest.importorskip("transformers")
transformers = load_library("transformers")
with warnings.catch_warnings():  # of its own making
    warnings.simplefilter("ignore")
    Deberta = transformers.DebertaForSequenceClassification

IDS = torch.randint(2, tiny.VOCAB, (4, 8))
CLASSES = torch.tensor([0, 1, 2, 1])
TAGS = torch.zeros(4, 8, dtype=torch.long)


def found(model: nn.Module, own_loss: bool = True, **batch: Any) -> str | None:
    mistake = find_mistake(FailureContext(model, batch, label_names=("labels",), own_loss=own_loss))
    return None if mistake is None else type(mistake).__name__


def certain(model: nn.Module, **batch: Any) -> str | None:
    """What is said before the model has tried."""
    mistake = find_certain_mistake(FailureContext(model, batch, label_names=("labels",)))
    return None if mistake is None else type(mistake).__name__


def fails(model: nn.Module, **batch: Any) -> bool:
    """Whether the model itself fails on this batch."""
    try:
        model(**batch)
    except Exception:
        return True
    return False


SEQUENCE = {
    "classes": CLASSES,
    "one ignored": torch.tensor([0, -100, 2, 1]),
    "all ignored": torch.full((4,), -100),
    "too high": torch.tensor([0, 1, 3, 1]),
    "negative": torch.tensor([0, -1, 2, 1]),
    "column of one": CLASSES[:, None],
    "floats": CLASSES.float(),
    "a float each": torch.rand(4, 3),
    "doubles": torch.rand(4, 3, dtype=torch.float64),
    "too few floats": torch.rand(4, 2),
    "integers each": torch.ones(4, 3, dtype=torch.long),
    "per token": TAGS,
    "small integers": CLASSES.int(),
}
PROBLEMS = [None, "single_label_classification", "multi_label_classification", "regression"]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("labels", SEQUENCE)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_sequences(num_labels: int, labels: str, problem: str | None) -> None:
    """A mistake is only named where the model fails."""
    batch = {"input_ids": IDS, "labels": SEQUENCE[labels]}
    model = tiny.bert(num_labels=num_labels)
    model.config.problem_type = problem
    said, known_before = found(model, **batch), certain(model, **batch)
    if said is not None or known_before is not None:
        assert fails(model, **batch), said


@pytest.mark.parametrize(
    ("labels", "mistake"),
    [
        ("classes", None),
        ("one ignored", None),
        ("too high", "OutOfRangeError"),
        ("negative", "OutOfRangeError"),
        ("floats", "TensorTypeError"),
        ("too few floats", "TensorShapeError"),
        ("integers each", "TensorShapeError"),
        ("per token", "TensorShapeError"),
        ("a float each", None),
    ],
)
def test_sequences_of_three_classes(labels: str, mistake: str | None) -> None:
    assert found(tiny.bert(), input_ids=IDS, labels=SEQUENCE[labels]) == mistake


@pytest.mark.parametrize("labels", SEQUENCE)
def test_a_model_that_takes_what_others_refuse(labels: str) -> None:
    """DeBERTa leaves out negative labels, and takes floats for classes."""
    config = transformers.DebertaConfig(
        vocab_size=tiny.VOCAB, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=3, max_position_embeddings=32,
    )  # fmt: skip
    model, batch = (
        transformers.DebertaForSequenceClassification(config),
        {"input_ids": IDS, "labels": SEQUENCE[labels]},
    )
    said = certain(model, **batch)
    assert said is None or fails(model, **batch), said
    assert said == ("OutOfRangeError" if labels == "too high" else None)


def test_certain_mistakes() -> None:
    assert certain(tiny.bert(num_labels=2), input_ids=IDS, labels=CLASSES) == "OutOfRangeError"
    assert certain(tiny.bert(num_labels=1), input_ids=IDS, labels=CLASSES) is None
    assert certain(tiny.bert(), input_ids=IDS + 100, labels=CLASSES) == "OutOfRangeError"
    assert certain(tiny.bert("TokenClassification"), input_ids=IDS, labels=TAGS + 3) == "OutOfRangeError"
    assert certain(tiny.t5(), input_ids=IDS, labels=TAGS + tiny.VOCAB) == "OutOfRangeError"


TOKENS = {
    "tags": TAGS,
    "ignored": torch.full((4, 8), -100),
    "too high": TAGS + 3,
    "negative": TAGS - 2,
    "floats": TAGS.float(),
    "shorter": TAGS[:, :6],
    "one each": CLASSES,
}


@pytest.mark.parametrize("labels", TOKENS)
@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_tokens(head: str, labels: str) -> None:
    model, batch = tiny.bert(head), {"input_ids": IDS, "labels": TOKENS[labels]}
    said = found(model, **batch)
    assert said is None or fails(model, **batch), said
    if head == "TokenClassification":
        assert (said is not None) == (labels not in ("tags", "ignored"))


@pytest.mark.parametrize("build", [tiny.gpt2, tiny.llama, tiny.t5], ids=["gpt2", "llama", "t5"])
@pytest.mark.parametrize("labels", [*TOKENS, "beyond"])
def test_words(build: Any, labels: str) -> None:
    values = TOKENS.get(labels, torch.full((4, 8), tiny.VOCAB))
    model, batch = build(), {"input_ids": IDS, "labels": values}
    said = found(model, **batch)
    assert said is None or fails(model, **batch), said
    assert said == "OutOfRangeError" or labels != "beyond"


@pytest.mark.parametrize("value", [tiny.VOCAB, -1, -100])
def test_tokens_out_of_range(value: int) -> None:
    ids = IDS.clone()
    ids[2, 3] = value
    assert found(tiny.bert(), input_ids=ids, labels=CLASSES) == "OutOfRangeError"
    assert fails(tiny.bert(), input_ids=ids, labels=CLASSES)


def test_choices() -> None:
    ids = IDS[:, None, :].repeat(1, 3, 1)
    model = tiny.bert("MultipleChoice")
    assert found(model, input_ids=ids, labels=CLASSES) is None
    assert found(model, input_ids=ids, labels=CLASSES + 1) == "OutOfRangeError"
    assert fails(model, input_ids=ids, labels=CLASSES + 1)


def test_subclasses_are_not_checked() -> None:
    class Own(transformers.BertForSequenceClassification):
        def forward(self, *args, labels=None, **kwargs):
            return super().forward(*args, **kwargs)

    model = Own(tiny.bert(num_labels=2).config)
    assert found(model, input_ids=IDS, labels=CLASSES + 5) is None


def test_models_with_another_loss_are_not_checked() -> None:
    assert found(tiny.bert(num_labels=2), own_loss=False, input_ids=IDS, labels=CLASSES + 5) is None
    assert found(tiny.bert(), own_loss=False, input_ids=IDS + 100, labels=CLASSES) == "OutOfRangeError"


def test_multimodal_models_are_not_checked() -> None:
    model = tiny.gpt2()
    model.config.vision_config = SimpleNamespace()
    assert found(model, input_ids=IDS + 100, labels=IDS + 100) is None


def test_resized_embeddings_count() -> None:
    model = tiny.gpt2()
    model.resize_token_embeddings(tiny.VOCAB + 200)
    assert found(model, input_ids=IDS + 100, labels=IDS + 100) is None


def test_positions_that_xlnet_predicts() -> None:
    config = transformers.XLNetConfig(vocab_size=tiny.VOCAB, d_model=16, n_layer=1, n_head=2, d_inner=16)
    model = transformers.XLNetLMHeadModel(config)
    batch = {"input_ids": IDS, "labels": TAGS[:, :1], "target_mapping": torch.zeros(4, 1, 8)}
    assert found(model, **batch) is None
    assert not fails(model, **batch)


def test_question_answering_and_headless_models_are_not_checked() -> None:
    positions = torch.full((4,), 99)
    model = tiny.bert("QuestionAnswering", num_labels=2)
    assert found(model, input_ids=IDS, start_positions=positions, end_positions=positions) is None
    assert found(transformers.BertModel(tiny.bert().config), input_ids=IDS) is None


@pytest.mark.parametrize("batch", [{}, {"labels": CLASSES}, {"labels": [0, 1]}, {"input_ids": [[1]], "labels": "x"}])
def test_unusual_batches_do_not_raise(batch: dict) -> None:
    for model in (tiny.bert(), tiny.bert("TokenClassification"), tiny.gpt2(), tiny.t5()):
        found(model, **batch)


def test_adapters() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny.bert(num_labels=2), peft.LoraConfig(target_modules=["query"]))
    assert found(model, input_ids=IDS, labels=CLASSES) == "OutOfRangeError"
