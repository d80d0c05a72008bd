"""What of a batch goes to `generate`, and what becomes of what it returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.evaluation.generate import find_filler, generate, pad_to_width, select_inputs

ROW = torch.arange(6).reshape(2, 3)


class Writer(nn.Module):
    """Remembers what it was given, and writes it down."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def generate(self, **given: Any) -> Any:
        self.given, self.with_gradients = given, torch.is_grad_enabled()
        return given["input_ids"] + 1


def batch(**more: Any) -> dict[str, Any]:
    return {"input_ids": ROW, "attention_mask": torch.ones_like(ROW), **more}


def test_labels_are_not_told() -> None:
    writer = Writer()
    ids = generate(writer, batch(labels=ROW), {"num_beams": 2}, label_names=["labels"])
    assert set(writer.given) == {"input_ids", "attention_mask", "num_beams"}
    assert torch.equal(ids, ROW + 1)
    assert not writer.with_gradients


def test_a_model_that_asks_for_labels_gets_them() -> None:
    class Asking(nn.Module):
        def generate(self, input_ids, labels, attention_mask=None):
            return labels

    assert generate(Asking(), batch(labels=ROW), {}, label_names=["labels"]) is ROW


def test_a_model_that_takes_nothing_but_its_input() -> None:
    class Plain(nn.Module):
        def generate(self, input_ids):
            return input_ids

    assert generate(Plain(), {"input_ids": ROW, "labels": ROW}, {"synced_gpus": True}, label_names=["labels"]) is ROW


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"labels": ROW, "decoder_input_ids": ROW}, []),
        ({"labels": ROW, "decoder_input_ids": ROW, "decoder_attention_mask": ROW}, []),
        ({"labels": ROW, "decoder_input_ids": ROW[:, :1]}, ["decoder_input_ids"]),
        ({"decoder_input_ids": ROW}, ["decoder_input_ids"]),
        ({"decoder_input_ids": ROW, "decoder_attention_mask": ROW}, ["decoder_input_ids", "decoder_attention_mask"]),
        ({"decoder_attention_mask": ROW}, []),
        ({"labels": None, "decoder_input_ids": None}, []),
        ({"pixel_values": ROW}, ["pixel_values"]),
    ],
    ids=["made of labels", "with its mask", "a beginning", "alone", "alone with mask", "mask only", "none", "other"],
)
def test_what_the_decoder_reads(more: dict[str, Any], kept: list[str]) -> None:
    assert list(select_inputs(batch(**more), ["labels"])) == ["input_ids", "attention_mask", *kept]


def test_the_batch_is_left_alone() -> None:
    given = batch(labels=ROW, decoder_input_ids=ROW)
    generate(Writer(), given, {}, label_names=["labels"])
    assert set(given) == {"input_ids", "attention_mask", "labels", "decoder_input_ids"}


def test_options_that_are_not_set_are_not_passed() -> None:
    writer, options = Writer(), {"max_length": None, "num_beams": None, "max_new_tokens": None, "top_k": None}
    generate(writer, batch(), {**options, "synced_gpus": True}, label_names=["labels"])
    assert set(writer.given) == {"input_ids", "attention_mask", "top_k"}


def test_an_option_may_replace_an_input() -> None:
    writer = Writer()
    generate(writer, batch(), {"attention_mask": None}, label_names=[])
    assert writer.given["attention_mask"] is None


def test_ids_are_found_in_an_output_with_more() -> None:
    class Telling(nn.Module):
        def generate(self, **given):
            return SimpleNamespace(sequences=ROW, scores=None)

    assert generate(Telling(), batch(), {}, label_names=[]) is ROW


def test_widening_never_cuts() -> None:
    assert pad_to_width(ROW, 5, 9).tolist() == [[0, 1, 2, 9, 9], [3, 4, 5, 9, 9]]
    assert pad_to_width(ROW, 2, 9).tolist() == ROW.tolist()


def model(**parts: Any) -> Any:
    module = nn.Module()
    for name, values in parts.items():
        setattr(module, name, SimpleNamespace(**values))
    return module


@pytest.mark.parametrize(
    ("tokenizer", "of", "filler"),
    [
        (SimpleNamespace(pad_token_id=7, eos_token_id=5), model(config={"pad_token_id": 3}), 7),
        (SimpleNamespace(pad_token_id=0), model(config={"pad_token_id": 3}), 0),
        (SimpleNamespace(pad_token_id=None, eos_token_id=5), model(config={"pad_token_id": 3}), 5),
        (SimpleNamespace(), model(config={"pad_token_id": 3}), 3),
        (SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=8)), model(config={"pad_token_id": 3}), 8),
        (None, model(config={"pad_token_id": 3}, generation_config={"pad_token_id": 4}), 3),
        (None, model(config={}, generation_config={"pad_token_id": 4}), 4),
        (None, model(config={}, generation_config={"pad_token_id": None, "eos_token_id": [6, 2]}), 6),
        (None, model(config={"eos_token_id": 2}), 2),
        (None, model(), None),
    ],
)
def test_what_stands_behind_the_end_of_a_text(tokenizer: Any, of: Any, filler: int | None) -> None:
    assert find_filler(tokenizer, of) == filler
