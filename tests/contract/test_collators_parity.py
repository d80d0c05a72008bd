"""Every collator beside transformers' on random rows: names, order, types and values of the batch, or a refusal."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato
from tests.support import tiny
from tests.support.apis import load_library

pytest.importorskip("transformers")

IDS = st.integers(min_value=2, max_value=tiny.VOCAB - 1)
TOKENS = st.lists(IDS, min_size=1, max_size=9)
KINDS = st.sampled_from(["pt", "np"])
SIDES = st.sampled_from(["right", "left"])
MULTIPLES = st.fixed_dictionaries({"pad_to_multiple_of": st.sampled_from([None, 4, 8])})
OPTIONS = st.one_of(
    MULTIPLES,
    st.fixed_dictionaries({"padding": st.sampled_from([True, "longest", False, "do_not_pad"])}),
    st.fixed_dictionaries({"padding": st.just("max_length"), "max_length": st.sampled_from([9, 12, None])}),
)
repeatable = settings(
    max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    """One that pads at the end and one that pads at the beginning."""
    found = {"right": tiny.tokenizer(), "left": tiny.tokenizer()}
    found["left"].padding_side = "left"
    return found


def described(batch: Any) -> list[tuple[Any, ...]]:
    return [
        (name, type(value).__name__, str(getattr(value, "dtype", "")), plain(value)) for name, value in batch.items()
    ]


def plain(value: Any) -> Any:
    """Lists of numbers; rows that are not padded may be of different lengths."""
    value = value.tolist() if isinstance(value, (np.ndarray, torch.Tensor)) else value
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def result(build: Any, rows: list[dict[str, Any]], seed: int) -> Any:
    """What a collator makes of the rows, from the same random streams; or the kind of its refusal."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    copies = [{name: list(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]
    try:
        return described(build()(copies))
    except Exception as error:
        return next(
            kind
            for kind in (KeyError, IndexError, TypeError, ValueError, RuntimeError, Exception)
            if isinstance(error, kind)
        )


def compare(name: str, rows: list[dict[str, Any]], *given_: Any, streams: int = 0, **options: Any) -> None:
    ours, theirs = getattr(ostinato, name), getattr(load_library("transformers"), name)
    found = result(lambda: ours(*given_, **options), rows, streams)
    expected = result(lambda: theirs(*given_, **options), rows, streams)
    if isinstance(expected, type):
        assert isinstance(found, type), f"transformers refuses with {expected.__name__}, ours gives {found}"
    else:
        assert found == expected


def masked(ids: list[int]) -> dict[str, Any]:
    return {"input_ids": ids, "attention_mask": [1] * len(ids)}


@repeatable
@given(
    rows=st.lists(TOKENS, min_size=1, max_size=4),
    side=SIDES,
    kind=KINDS,
    options=OPTIONS,
    label=st.sampled_from([None, "label", "labels", "label_ids"]),
)
def test_with_padding(tokenizers, rows, side, kind, options, label) -> None:
    data = [{**masked(ids), **({label: ids[0] % 3} if label else {})} for ids in rows]
    compare("DataCollatorWithPadding", data, tokenizers[side], return_tensors=kind, **options)


@repeatable
@given(
    rows=st.lists(TOKENS, min_size=1, max_size=4),
    side=SIDES,
    kind=KINDS,
    options=OPTIONS,
    name=st.sampled_from(["label", "labels"]),
    filler=st.sampled_from([-100, -1]),
)
def test_token_classification(tokenizers, rows, side, kind, options, name, filler) -> None:
    data = [{**masked(ids), name: [token % 3 for token in ids]} for ids in rows]
    more = {"label_pad_token_id": filler, "return_tensors": kind, **options}
    compare("DataCollatorForTokenClassification", data, tokenizers[side], **more)


@repeatable
@given(
    rows=st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=4),
    side=SIDES,
    kind=KINDS,
    options=OPTIONS,
)
def test_seq2seq(tokenizers, rows, side, kind, options) -> None:
    data = [{**masked(source), "labels": target} for source, target in rows]
    compare("DataCollatorForSeq2Seq", data, tokenizers[side], return_tensors=kind, **options)


REPLACED = st.sampled_from([(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.5)])


@repeatable
@given(
    rows=st.lists(TOKENS, min_size=1, max_size=4),
    side=SIDES,
    kind=KINDS,
    options=MULTIPLES,
    share=st.sampled_from([0.15, 0.5, 0.9]),
    replaced=REPLACED,
    seed=st.integers(0, 99),
    own_seed=st.sampled_from([None, 3]),
)
def test_masked_language_modeling(tokenizers, rows, side, kind, options, share, replaced, seed, own_seed) -> None:
    more = {"mlm_probability": share, "seed": own_seed, "return_tensors": kind, **options}
    more.update(mask_replace_prob=replaced[0], random_replace_prob=replaced[1])
    compare("DataCollatorForLanguageModeling", [masked(ids) for ids in rows], tokenizers[side], streams=seed, **more)


@repeatable
@given(
    rows=st.lists(st.lists(st.tuples(IDS, st.booleans()), min_size=1, max_size=9), min_size=1, max_size=4),
    kind=KINDS,
    share=st.sampled_from([0.15, 0.5]),
    seed=st.integers(0, 99),
    own_seed=st.sampled_from([None, 3]),
)
def test_whole_words(tokenizers, rows, kind, share, seed, own_seed) -> None:
    """Tokens begin words, or go on where the one before ended. Rows of one length: see below."""
    longest = max(map(len, rows))
    data = []
    for row in rows:
        row = (row * longest)[:longest]
        offsets, end = [], 0
        for _, begins in row:
            start = end + begins
            end = start + 2
            offsets.append((start, end))
        data.append({**masked([token for token, _ in row]), "offset_mapping": offsets})
    more = {"mlm_probability": share, "seed": own_seed, "return_tensors": kind, "whole_word_mask": True}
    more.update(mask_replace_prob=1.0, random_replace_prob=0.0)  # the only shares there are for whole words
    compare("DataCollatorForLanguageModeling", data, tokenizers["right"], streams=seed, **more)


@repeatable
@given(rows=st.lists(TOKENS, min_size=1, max_size=4), side=SIDES, kind=KINDS, options=MULTIPLES)
def test_causal_language_modeling_where_padding_has_a_token_of_its_own(tokenizers, rows, side, kind, options) -> None:
    data = [masked(ids) for ids in rows]
    compare("DataCollatorForLanguageModeling", data, tokenizers[side], mlm=False, return_tensors=kind, **options)


@repeatable
@given(
    rows=st.lists(st.lists(TOKENS, min_size=2, max_size=2), min_size=1, max_size=3),
    kind=st.just("pt"),  # transformers has no other
    options=OPTIONS,
    label=st.sampled_from(["label", "labels"]),
)
def test_multiple_choice(tokenizers, rows, kind, options, label) -> None:
    data = [
        {"input_ids": choices, "attention_mask": [[1] * len(ids) for ids in choices], label: number % 2}
        for number, choices in enumerate(rows)
    ]
    compare("DataCollatorForMultipleChoice", data, tokenizers["right"], return_tensors=kind, **options)


@repeatable
@given(
    rows=st.lists(TOKENS, min_size=1, max_size=4),
    kind=KINDS,
    positions=st.booleans(),
    marks=st.booleans(),
    bounds=st.booleans(),
    labelled=st.booleans(),
    filler=st.sampled_from([-100, 7]),
    first=st.sampled_from([0, 2]),
)
def test_flattening(rows, kind, positions, marks, bounds, labelled, filler, first) -> None:
    data = [{"input_ids": ids, **({"labels": ids} if labelled else {})} for ids in rows]
    more = {"return_position_ids": positions, "return_seq_idx": marks, "return_flash_attn_kwargs": bounds}
    more.update(separator_id=filler, position_ids_start=first, return_tensors=kind)
    compare("DataCollatorWithFlattening", data, **more)


@repeatable
@given(
    rows=st.lists(
        st.tuples(st.floats(-5, 5, width=32), st.lists(st.integers(-9, 9), min_size=3, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    kind=KINDS,
    label=st.sampled_from([("label", int), ("label", float), ("label_ids", list), ("labels", int), (None, None)]),
)
def test_default(rows, kind, label) -> None:
    name, form = label
    values = {int: lambda row: row[1][0], float: lambda row: float(row[0]), list: lambda row: row[1]}
    data = [
        {"x": row[0], "y": row[1], "text": "left out", **({name: values[form](row)} if name else {})} for row in rows
    ]
    compare("DefaultDataCollator", data, return_tensors=kind)


@repeatable
@given(
    rows=st.lists(st.lists(IDS, min_size=2, max_size=8).filter(lambda ids: len(ids) % 2 == 0), min_size=1, max_size=3),
    kind=KINDS,
    span=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_permutation_language_modeling(tokenizers, rows, kind, span, seed) -> None:
    longest = max(map(len, rows))
    data = [{"input_ids": ids} for ids in rows if len(ids) == longest]
    more = {"plm_probability": 1 / 3, "max_span_length": span, "return_tensors": kind}
    compare("DataCollatorForPermutationLanguageModeling", data, tokenizers["right"], streams=seed, **more)
