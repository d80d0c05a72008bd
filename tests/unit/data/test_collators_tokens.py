"""Token rows, pairs, choices and flattened rows: the same batches as transformers, and errors that explain."""

from __future__ import annotations

import copy
import inspect
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import ConfigError, DataError, NotSupportedError
from ostinato.data.collators.choice_rows import DataCollatorForMultipleChoice
from ostinato.data.collators.flattening import DataCollatorWithFlattening
from ostinato.data.collators.language_modeling import DataCollatorForLanguageModeling
from ostinato.data.collators.permutation import DataCollatorForPermutationLanguageModeling
from ostinato.data.collators.sequence_pairs import DataCollatorForSeq2Seq
from ostinato.data.collators.token_labels import DataCollatorForTokenClassification

OURS = [
    DataCollatorForTokenClassification,
    DataCollatorForSeq2Seq,
    DataCollatorForMultipleChoice,
    DataCollatorWithFlattening,
    DataCollatorForLanguageModeling,
    DataCollatorForPermutationLanguageModeling,
]
PADDING: list[dict[str, Any]] = [
    {},
    {"pad_to_multiple_of": 4},
    {"padding": "max_length", "max_length": 16},
    {"padding": "max_length", "max_length": 13, "pad_to_multiple_of": 8},
    {"padding": "longest", "max_length": 3},
]


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def trained(transformers: Any) -> Any:
    """A WordPiece tokenizer trained on the spot."""
    tokenizers = pytest.importorskip("tokenizers")
    rng = random.Random(0)
    texts = [
        " ".join("".join(rng.choices("abcdef", k=rng.randint(1, 8))) for _ in range(rng.randint(2, 9)))
        for _ in range(100)
    ]
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    core.train_from_iterator(texts, trainer)
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)


@pytest.fixture(params=["right", "left"])
def tokenizer(trained: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    trained.padding_side = request.param
    yield trained
    trained.padding_side = "right"


class Model:
    """Makes decoder inputs of labels, in whatever they come."""

    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        return labels * 0 + 5


def token_rows(seed: int, *, label: str | None = "labels", label_length: int | None = None) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for _ in range(rng.randint(1, 5)):
        length = rng.randint(1, 12)
        row: dict[str, Any] = {"extra": rng.random(), "input_ids": rng.choices(range(5, 100), k=length)}
        if label is not None:
            row[label] = rng.choices(range(9), k=rng.randint(1, label_length) if label_length else length)
        rows.append({**row, "attention_mask": [1] * length, "token_type_ids": rng.choices((0, 1), k=length)})
    return rows


def described(batch: Any) -> list[Any]:
    return [
        (name, str(value.dtype), tuple(value.shape), value.tolist()) if isinstance(value, (torch.Tensor, np.ndarray))
        else (name, type(value), value)
        for name, value in batch.items()
    ]  # fmt: skip


def assert_same(ours: Any, theirs: Any, rows: list[Any], kind: str | None = None) -> None:
    before = copy.deepcopy(rows)
    options = {} if kind is None else {"return_tensors": kind}
    batch = ours(rows, **options)
    assert str(rows) == str(before), "the rows were changed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it makes tensors of lists of arrays
        expected = theirs(copy.deepcopy(rows), **options)
    assert described(batch) == described(expected)
    assert type(batch) is type(expected)


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: ours.__name__)
def test_same_constructor_as_transformers(transformers: Any, ours: Any) -> None:
    def outline(made: Any) -> list[Any]:
        return [(each.name, each.kind, each.default) for each in inspect.signature(made).parameters.values()]

    assert outline(ours) == outline(getattr(transformers, ours.__name__))


# One label per token -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("label", ["labels", "label", None])
@pytest.mark.parametrize("options", PADDING, ids=str)
def test_token_classification(transformers: Any, tokenizer: Any, options: Any, label: Any, kind: str) -> None:
    options = {**options, "label_pad_token_id": -7, "return_tensors": kind}
    ours = DataCollatorForTokenClassification(tokenizer, **options)
    theirs = transformers.DataCollatorForTokenClassification(tokenizer, **options)
    for seed in range(3):
        assert_same(ours, theirs, token_rows(seed, label=label))


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize(
    "form",
    [
        torch.tensor,
        np.array,
        lambda values: np.array(values, dtype=np.int32),
        lambda values: [v + 0.5 for v in values],
    ],
)
@pytest.mark.parametrize("name", ["DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"])
def test_labels_in_other_forms(transformers: Any, trained: Any, name: str, form: Any, kind: str) -> None:
    ours = {each.__name__: each for each in OURS}[name](trained)
    rows = [{**row, "labels": form(row["labels"])} for row in token_rows(1)]
    assert_same(ours, getattr(transformers, name)(trained), rows, kind)
    batch_encodings = [transformers.BatchEncoding(row) for row in token_rows(2)]
    assert_same(ours, getattr(transformers, name)(trained), batch_encodings, kind)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": None}, ["row 1", "'labels'"]),
        ({"labels": 3}, ["single value", "DataCollatorWithPadding"]),
        ({"labels": [1] * 50}, ["row 1 of the batch has 2 tokens and 50 labels", "truncated"]),
        ({"labels": ["O", "B-PER"]}, ["'labels' of row 1", "'O'"]),
        ({"labels": "O"}, ["row 1", "text", "text_target"]),
    ],
)
def test_token_labels_that_do_not_fit(trained: Any, change: Any, words: list[str]) -> None:
    first = {"input_ids": [5, 6], "labels": [0, 1]}
    with pytest.raises(DataError) as caught:
        DataCollatorForTokenClassification(trained)([first, {**first, **change}])
    assert all(word in str(caught.value) for word in words) and caught.value.why and caught.value.fix


# Pairs of sequences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("model", [None, Model(), object()], ids=["no model", "prepares", "does not prepare"])
@pytest.mark.parametrize("options", PADDING, ids=str)
def test_seq2seq(transformers: Any, tokenizer: Any, options: Any, model: Any, kind: str) -> None:
    options = {**options, "label_pad_token_id": -7, "return_tensors": kind}
    ours = DataCollatorForSeq2Seq(tokenizer, model, **options)
    theirs = transformers.DataCollatorForSeq2Seq(tokenizer, model, **options)
    for seed, label in enumerate(["labels", "label", None]):
        assert_same(ours, theirs, token_rows(seed, label=label, label_length=13))


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("padding", [False, "do_not_pad"])
def test_seq2seq_of_equal_lengths_needs_no_padding(transformers: Any, trained: Any, padding: Any, kind: str) -> None:
    rows = token_rows(0)[:1] * 3
    ours, theirs = DataCollatorForSeq2Seq, transformers.DataCollatorForSeq2Seq
    assert_same(ours(trained, padding=padding), theirs(trained, padding=padding), rows, kind)


def test_seq2seq_with_the_padding_enum(transformers: Any, trained: Any) -> None:
    options = {"padding": transformers.utils.PaddingStrategy.MAX_LENGTH, "max_length": 15}
    ours, theirs = DataCollatorForSeq2Seq, transformers.DataCollatorForSeq2Seq
    assert_same(ours(trained, **options), theirs(trained, **options), token_rows(3))


def test_seq2seq_without_labels(transformers: Any, trained: Any) -> None:
    rows = [{**row, "labels": None} for row in token_rows(0)]
    assert_same(DataCollatorForSeq2Seq(trained, Model()), transformers.DataCollatorForSeq2Seq(trained, Model()), rows)


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_seq2seq_labels_that_do_not_fit(trained: Any, kind: str) -> None:
    rows = [{"input_ids": [5], "labels": [1] * 3}, {"input_ids": [5], "labels": [1] * 9}]
    with pytest.raises(DataError, match="differ in length after padding"):
        DataCollatorForSeq2Seq(trained, padding="max_length", max_length=5, return_tensors=kind)(rows)
    with pytest.raises(DataError, match="row 1"):
        DataCollatorForSeq2Seq(trained)([rows[0], {"input_ids": [5], "labels": None}], return_tensors=kind)


# Choices -------------------------------------------------------------------------------------------------------------


def choice_rows(seed: int, label: str) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    choices = rng.randint(1, 4)
    rows = []
    for _ in range(rng.randint(1, 4)):
        ids = [rng.choices(range(5, 100), k=rng.randint(1, 9)) for _ in range(choices)]
        rows.append({label: rng.randrange(choices), "input_ids": ids, "token_type_ids": [[1] * len(x) for x in ids]})
    return rows


@pytest.mark.parametrize("label", ["label", "labels"])
@pytest.mark.parametrize("options", PADDING, ids=str)
def test_multiple_choice(transformers: Any, tokenizer: Any, options: Any, label: str) -> None:
    ours = DataCollatorForMultipleChoice(tokenizer, **options)
    theirs = transformers.DataCollatorForMultipleChoice(tokenizer, **options)
    for seed in range(5):
        rows = choice_rows(seed, label)
        assert_same(ours, theirs, rows)
        arrays = ours(rows, return_tensors="np")
        assert [(k, v.tolist()) for k, v in arrays.items()] == [(k, v.tolist()) for k, v in ours(rows).items()]
        assert all(isinstance(value, np.ndarray) for value in arrays.values())


def test_multiple_choice_without_labels(trained: Any) -> None:
    batch = DataCollatorForMultipleChoice(trained)([{"input_ids": [[5], [6, 7]]}])
    assert list(batch) == ["input_ids", "attention_mask"]
    assert batch["input_ids"].tolist() == [[[5, 0], [6, 7]]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"input_ids": [[5]] * 3, "label": 0}, ["3 entries", "2 choices"]),
        ({"input_ids": [[5]] * 2, "label": 0, "id": 7}, ["'id'", "single value"]),
        ({"input_ids": [[5]] * 2}, ["row 1", "'label'"]),
    ],
)
def test_choices_that_do_not_fit(trained: Any, row: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        DataCollatorForMultipleChoice(trained)([{"input_ids": [[5], [6, 7]], "label": 1}, row])
    assert all(word in str(caught.value) for word in words) and caught.value.why and caught.value.fix


# All in one row ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("label", ["labels", None])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_position_ids": False},
        {"return_flash_attn_kwargs": True, "separator_id": -5},
        {"return_seq_idx": True, "position_ids_start": 2},
        {"return_seq_idx": True, "return_flash_attn_kwargs": True},
    ],
    ids=str,
)
def test_flattening(transformers: Any, options: Any, label: Any, kind: str) -> None:
    ours = DataCollatorWithFlattening(return_tensors=kind, **options)
    theirs = transformers.DataCollatorWithFlattening(return_tensors=kind, **options)
    for seed in range(4):
        assert_same(ours, theirs, token_rows(seed, label=label))
        assert_same(ours, theirs, token_rows(seed, label=label), "np")
    rows = [{name: torch.tensor(value) for name, value in row.items()} for row in token_rows(1)]
    assert_same(ours, theirs, rows)


def test_flattening_with_another_separator_for_one_call(transformers: Any) -> None:
    rows = token_rows(2)
    ours, theirs = DataCollatorWithFlattening("np"), transformers.DataCollatorWithFlattening("np")
    assert described(ours(rows, separator_id=0)) == described(theirs(rows, separator_id=0))


def test_flattening_leaves_no_trace_of_empty_rows() -> None:
    batch = DataCollatorWithFlattening()([{"input_ids": [5, 6]}, {"input_ids": []}, {"input_ids": [7, 8]}])
    assert batch["labels"].tolist() == [[-100, 6, -100, 8]]


def test_flattening_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        DataCollatorWithFlattening()([{"input_ids": [5], "attention_mask": [1], "source": 3}])
    assert capsys.readouterr().err.count("left out: source") == 1


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([], "without rows"),
        ([{"x": 1}], "'input_ids'"),
        ([{"input_ids": [1], "labels": [1]}, {"input_ids": [1]}], "'labels'"),
        ([{"input_ids": [1, 2], "labels": [1]}], "2 tokens and 1 labels"),
    ],
)
def test_rows_that_cannot_be_flattened(rows: list[Any], word: str) -> None:
    with pytest.raises(DataError, match=word) as caught:
        DataCollatorWithFlattening()(rows)
    assert caught.value.why and caught.value.fix


# Common to all -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: ours.__name__)
def test_other_tensors_and_empty_batches_are_refused(trained: Any, ours: Any) -> None:
    collator = ours() if ours is DataCollatorWithFlattening else ours(trained)
    with pytest.raises(NotSupportedError, match="return_tensors"):
        collator([{"input_ids": [5, 6], "labels": [5, 6]}], return_tensors="tf")
    with pytest.raises(DataError, match="without rows"):
        collator([])


@pytest.mark.parametrize("ours", OURS[:3], ids=lambda ours: ours.__name__)
def test_a_tokenizer_without_pad_token_is_explained(transformers: Any, trained: Any, ours: Any) -> None:
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=trained.backend_tokenizer)
    rows = choice_rows(0, "label") if ours is DataCollatorForMultipleChoice else token_rows(0)
    with pytest.raises(ConfigError, match="no pad token") as caught:
        ours(bare)(rows)
    assert isinstance(caught.value, ValueError) and caught.value.why and "pad_token" in caught.value.fix


class Padder:
    """The least that a tokenizer has to be."""

    def pad(self, features: Any, *, return_tensors: str, **options: Any) -> dict[str, Any]:
        length = max(len(row["input_ids"]) for row in features)
        return {
            "input_ids": torch.tensor([row["input_ids"] + [0] * (length - len(row["input_ids"])) for row in features])
        }


def test_any_tokenizer_that_pads_will_do() -> None:
    rows = [{"input_ids": [5], "labels": [1]}, {"input_ids": [5, 6], "labels": [2, 3]}]
    for ours in (DataCollatorForTokenClassification, DataCollatorForSeq2Seq):
        assert ours(Padder())(rows)["labels"].tolist() == [[1, -100], [2, 3]]
    assert DataCollatorForMultipleChoice(Padder())([{"input_ids": [[5], [6, 7]], "label": 1}])["labels"].tolist() == [
        1
    ]
    causal = DataCollatorForLanguageModeling(Padder(), mlm=False)
    assert causal([{"input_ids": [5]}, {"input_ids": [5, 0]}])["labels"].tolist() == [[5, -100], [5, 0]]
