"""Padding gives what transformers gives, for any tokenizer that can pad, without a warning."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from ostinato.data.collators.padding import DataCollatorWithPadding, can_pad_rows


class Padder:
    """The least that a tokenizer has to be."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def pad(self, features: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        self.calls.append(options)
        longest = max(len(row["input_ids"]) for row in features)
        ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in features]
        return {"input_ids": torch.tensor(ids)} | {
            name: [row[name] for row in features] for name in features[0] if name != "input_ids"
        }


class Adviser(Padder):
    """One that advises against padding on its own, as fast tokenizers do."""

    def __init__(self) -> None:
        super().__init__()
        self.deprecation_warnings: dict[str, bool] = {}
        self.advised = 0

    def pad(self, features: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        self.advised += not self.deprecation_warnings.get("Asking-to-pad-a-fast-tokenizer", False)
        return super().pad(features, **options)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "a", "b", "c", "d", "e", "f"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")


def described(batch: Any) -> list[tuple[str, str, Any]]:
    return [(name, str(value.dtype), value.tolist()) for name, value in batch.items()]


@pytest.mark.parametrize(
    "label", [{}, {"label": 1}, {"labels": 1}, {"label_ids": [1]}, {"label": 2, "label_ids": [1]}]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pad_to_multiple_of": 8},
        {"padding": "max_length", "max_length": 9},
        {"padding": "longest", "return_tensors": "np"},
    ],
)
def test_same_batch_as_transformers(tokenizer: Any, options: dict[str, Any], label: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    rng = random.Random(0)
    texts = [" ".join(rng.choices("abcdef", k=rng.randint(1, 7))) for _ in range(5)]
    rows = [{**tokenizer(text), **label} for text in texts]
    expected = transformers.DataCollatorWithPadding(tokenizer, **options)(rows)
    batch = DataCollatorWithPadding(tokenizer, **options)(rows)
    assert described(batch) == described(expected)
    assert type(batch) is type(expected)


def test_labels_are_renamed_for_any_tokenizer() -> None:
    batch = DataCollatorWithPadding(Padder())([{"input_ids": [1], "label": 0}, {"input_ids": [1, 2], "label": 1}])
    assert list(batch) == ["input_ids", "labels"]
    assert batch["input_ids"].tolist() == [[1, 0], [1, 2]]
    assert batch["labels"] == [0, 1]


def test_options_reach_the_tokenizer() -> None:
    padder = Padder()
    DataCollatorWithPadding(padder, "max_length", 7, 4, "np")([{"input_ids": [1]}])
    assert padder.calls == [
        {"padding": "max_length", "max_length": 7, "pad_to_multiple_of": 4, "return_tensors": "np"}
    ]


@pytest.mark.parametrize("before", [{}, {"Asking-to-pad-a-fast-tokenizer": True}])
def test_no_advice_to_a_collator_but_later_to_the_user(before: dict[str, bool]) -> None:
    adviser = Adviser()
    adviser.deprecation_warnings.update(before)
    DataCollatorWithPadding(adviser)([{"input_ids": [1]}])
    assert adviser.advised == 0
    assert adviser.deprecation_warnings.get("Asking-to-pad-a-fast-tokenizer", False) is bool(before)


def pad_as_an_extractor(
    features, padding=True, max_length=None, truncation=False, pad_to_multiple_of=None, return_tensors=None
): ...


def pad_images(images, pad_size=None, fill_value=0, padding_mode="constant", return_mask=False, **kwargs): ...


def pad_one_image(image, size, aspect_ratio): ...


def pad_and_return_pixels(images, return_pixel_mask=True, return_tensors=None): ...


def pad_anything(*args, **kwargs): ...


def pad_rows_alone(rows): ...


def pad_with_one_option(rows, *, return_tensors, **options): ...


def pad_any_images(images, **options): ...


@pytest.mark.parametrize(
    ("pad", "expected"),
    [
        (pad_as_an_extractor, True),
        (pad_with_one_option, True),
        (pad_images, False),
        (pad_one_image, False),
        (pad_and_return_pixels, False),
        (pad_anything, False),
        (pad_any_images, False),
        (pad_rows_alone, False),
        ((0, 0), False),
        (None, False),
    ],
)
def test_a_pad_of_another_kind_is_not_taken_for_one_that_pads_rows(pad: Any, expected: bool) -> None:
    assert can_pad_rows(type("Processing", (), {"pad": staticmethod(pad) if callable(pad) else pad})) is expected


@pytest.mark.parametrize(("columns", "expected"), [(["input_ids"], True), ([], False)])
def test_a_pad_without_named_options_pads_rows_if_its_object_names_columns(columns: list[str], expected: bool) -> None:
    tokenizer = Padder()
    tokenizer.model_input_names = columns
    assert can_pad_rows(tokenizer) is expected


def test_what_has_no_pad_pads_no_rows() -> None:
    assert not can_pad_rows(None) and not can_pad_rows(object())
