"""Language modeling: bit for bit what transformers gives, but a text's end is learned when it is also padding."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ostinato.core.errors import ConfigError, DataError
from ostinato.data.collators.language_modeling import DataCollatorForLanguageModeling
from ostinato.data.collators.permutation import DataCollatorForPermutationLanguageModeling

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def some_texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [
        " ".join("".join(rng.choices("abcdef", k=rng.randint(1, 8))) for _ in range(rng.randint(1, 9)))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def trained(transformers: Any) -> Any:
    """A WordPiece tokenizer trained on the spot, with one token added later."""
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
    core.train_from_iterator(some_texts(0, 100), trainer)
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], SPECIAL, strict=True))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)
    made.add_tokens(["zebra"])
    return made


@pytest.fixture(params=["right", "left"])
def tokenizer(trained: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    trained.padding_side = request.param
    yield trained
    trained.padding_side = "right"


@pytest.fixture(scope="module")
def generative(transformers: Any) -> Any:
    """A byte-level BPE tokenizer whose pad token is its end-of-text token."""
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=80, special_tokens=["<end>"], show_progress=False)
    core.train_from_iterator(some_texts(0, 100), trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<end>")


def described(batch: Any) -> list[Any]:
    return [(name, str(value.dtype), tuple(value.shape), value.tolist()) for name, value in batch.items()]


def seeded(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def states() -> tuple[Any, ...]:
    """Where the global generators stand."""
    _, numbers, place, *_ = np.random.get_state()
    return random.getstate(), numbers.tobytes(), place, torch.get_rng_state().numpy().tobytes()


def pair(transformers: Any, ours: Any, tokenizer: Any, **options: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where we note
        return ours(tokenizer, **options), getattr(transformers, ours.__name__)(tokenizer, **options)


def assert_same(ours: Any, theirs: Any, rows: list[Any], seed: int = 0, kind: str | None = None) -> Any:
    """The same batch, and the same numbers left to draw."""
    before = copy.deepcopy(rows)
    seeded(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, left = theirs(copy.deepcopy(rows), return_tensors=kind), states()
    seeded(seed)
    batch = ours(rows, return_tensors=kind)
    assert described(batch) == described(expected)
    assert states() == left
    assert type(batch) is type(expected)
    assert str(rows) == str(before), "the rows were changed"
    return batch


# Causal --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("multiple", [None, 8])
def test_causal_is_the_same_where_padding_has_its_own_token(
    transformers: Any, tokenizer: Any, multiple: Any, kind: str
) -> None:
    options = {"mlm": False, "pad_to_multiple_of": multiple, "return_tensors": kind}
    ours, theirs = pair(transformers, DataCollatorForLanguageModeling, tokenizer, **options)
    texts = some_texts(1, 5)
    for given in (
        [tokenizer(text) for text in texts],
        [tokenizer(text, return_special_tokens_mask=True) for text in texts],
        [{"input_ids": tokenizer(text)["input_ids"], "extra": 3} for text in texts],
        [tokenizer(text, padding="max_length", max_length=40, return_offsets_mapping=True) for text in texts],
        [{"input_ids": tokenizer(text, padding="max_length", max_length=40)["input_ids"]} for text in texts],
        [{"input_ids": [5, 0, 6], "attention_mask": [1, 1, 1]}, {"input_ids": [7], "attention_mask": [1]}],
        [{"labels": [5] * 3, "input_ids": [5, 0, 6], "label": 1}] * 2,
        [transformers.BatchEncoding({"input_ids": [5, 0, 6], "labels": [5] * 3})] * 2,
        [tokenizer(text)["input_ids"] for text in texts],
        [tokenizer(texts[0])["input_ids"]] * 2,
        [np.array(tokenizer(text)["input_ids"]) for text in texts],
        [np.array(tokenizer(text)["input_ids"], dtype=np.int32) for text in texts],
    ):
        assert_same(ours, theirs, given)
    tensors = [torch.tensor(tokenizer(text)["input_ids"], dtype=torch.int32) for text in texts]
    if kind == "pt":
        assert_same(ours, theirs, tensors)
    else:  # transformers does not make arrays of tensors
        assert described(ours(tensors)) == described(ours([tokenizer(text)["input_ids"] for text in texts]))


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("form", ["mapping", "no mask", "list"])
def test_the_end_of_a_text_is_learned(transformers: Any, generative: Any, side: str, kind: str, form: str) -> None:
    generative.padding_side = side
    end = generative.eos_token_id
    texts = [[20, 21, end], [20, end, 22, 23, end]]
    rows: list[Any] = [{"input_ids": text, "attention_mask": [1] * len(text)} for text in texts]
    if form != "mapping":
        rows = [{"input_ids": text} for text in texts] if form == "no mask" else texts
    ours, theirs = pair(transformers, DataCollatorForLanguageModeling, generative, mlm=False, return_tensors=kind)
    batch, expected = ours(rows), theirs(copy.deepcopy(rows))
    gap = [-100, -100]
    first = [20, 21, end, *gap] if side == "right" else [*gap, 20, 21, end]
    assert batch["labels"].tolist() == [first, texts[1]]
    assert end not in expected["labels"].tolist()[0]
    assert batch["labels"].dtype == expected["labels"].dtype and list(batch) == list(expected)
    del batch["labels"], expected["labels"]
    assert described(batch) == described(expected)


def test_rows_padded_before_keep_one_end(generative: Any, capsys: pytest.CaptureFixture[str]) -> None:
    generative.padding_side = "right"
    end = generative.eos_token_id
    collator = DataCollatorForLanguageModeling(generative, mlm=False)
    padded = [20, 21, end, end, end]
    masked = {"input_ids": padded, "attention_mask": [1, 1, 1, 0, 0]}
    assert collator([masked])["labels"].tolist() == [[20, 21, end, -100, -100]]
    assert capsys.readouterr().err == ""
    assert collator([{"input_ids": padded}])["labels"].tolist() == [[20, 21, end, -100, -100]]
    assert "attention_mask" in capsys.readouterr().err
    assert collator([padded])["labels"].tolist() == [[20, 21, end, -100, -100]]
    generative.padding_side = "left"
    assert collator([{"input_ids": [end, end, 20, end]}])["labels"].tolist() == [[-100, end, 20, end]]
    generative.padding_side = "right"


def test_labels_of_rows_are_replaced_with_a_notice(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"input_ids": [5, 6], "labels": [-100, 6]}, {"input_ids": [5], "labels": [5]}]
    batch = DataCollatorForLanguageModeling(trained, mlm=False)(rows)
    assert batch["labels"].tolist() == [[5, 6], [5, -100]]
    assert "labels of the rows are not used" in capsys.readouterr().err


def test_no_advice_about_fast_tokenizers(trained: Any, capfd: pytest.CaptureFixture[str]) -> None:
    trained.deprecation_warnings.clear()
    DataCollatorForLanguageModeling(trained, mlm=False)([trained("ab"), trained("abc def")])
    assert capfd.readouterr() == ("", "")


# Masked --------------------------------------------------------------------------------------------------------------

SHARES: list[dict[str, Any]] = [
    {},
    {"mlm_probability": 0.6},
    {"mlm_probability": 0},
    {"mlm_probability": 1},
    {"mlm_probability": 1, "mask_replace_prob": 0.3, "random_replace_prob": 0.4},
    {"mlm_probability": 0.5, "mask_replace_prob": 1, "random_replace_prob": 0},
    {"mlm_probability": 0.5, "mask_replace_prob": 0, "random_replace_prob": 1},
    {"mlm_probability": 0.5, "mask_replace_prob": 0, "random_replace_prob": 0},
    {"mlm_probability": 0.5, "mask_replace_prob": 0.5, "random_replace_prob": 0.5, "pad_to_multiple_of": 8},
    {"mlm_probability": 0.5, "mask_replace_prob": 0.9, "random_replace_prob": 0, "seed": 11},
    {"mlm_probability": 0.5, "seed": 11},
]


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("options", SHARES, ids=str)
def test_masked_is_the_same(transformers: Any, tokenizer: Any, options: Any, kind: str) -> None:
    ours, theirs = pair(transformers, DataCollatorForLanguageModeling, tokenizer, return_tensors=kind, **options)
    for seed in range(2):
        texts = some_texts(seed, 6)
        assert_same(ours, theirs, [tokenizer(text) for text in texts], seed)
        assert_same(ours, theirs, [tokenizer(text, return_special_tokens_mask=True) for text in texts], seed)
        assert_same(ours, theirs, [tokenizer(text, "ab cd", add_special_tokens=False) for text in texts], seed)
        assert_same(ours, theirs, [tokenizer(text)["input_ids"] for text in texts], seed)


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_masked_in_a_large_batch(transformers: Any, trained: Any, kind: str) -> None:
    ours, theirs = pair(transformers, DataCollatorForLanguageModeling, trained, return_tensors=kind)
    rows = [list(np.random.default_rng(row).integers(5, 121, size=128).tolist()) for row in range(64)]
    batch = assert_same(ours, theirs, rows, 3)
    labels, inputs, ids = (np.asarray(each) for each in (batch["labels"], batch["input_ids"], np.array(rows)))
    hidden = labels != -100
    assert hidden.mean() == pytest.approx(0.15, abs=0.02)
    assert (inputs[hidden] == trained.mask_token_id).mean() == pytest.approx(0.8, abs=0.04)
    assert (inputs[hidden] == ids[hidden]).mean() == pytest.approx(0.1, abs=0.04)
    assert (inputs[~hidden] == ids[~hidden]).all() and (labels[hidden] == ids[hidden]).all()


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("options", [{}, {"mlm_probability": 0.5}, {"mlm_probability": 0.5, "seed": 4}], ids=str)
def test_whole_words_are_the_same(transformers: Any, tokenizer: Any, options: Any, kind: str) -> None:
    options = {**options, "whole_word_mask": True, "return_tensors": kind}
    ours, theirs = pair(transformers, DataCollatorForLanguageModeling, tokenizer, **options)
    assert (ours.mask_replace_prob, ours.random_replace_prob) == (theirs.mask_replace_prob, theirs.random_replace_prob)
    wanted = {"return_offsets_mapping": True, "padding": "max_length", "truncation": True, "max_length": 20}
    for seed in range(3):
        texts = [f"  {text} ab[SEP]cd,ef" for text in some_texts(seed, 5)]
        for more in ({}, {"return_special_tokens_mask": True}, {"text_pair": ["fade abc"] * 5}):
            encoded = tokenizer(texts, **wanted, **more)
            rows = [{name: values[row] for name, values in encoded.items()} for row in range(5)]
            assert_same(ours, theirs, rows, seed)


def test_whole_words_in_rows_of_different_lengths(tokenizer: Any) -> None:
    collator = DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mlm_probability=0.5)
    rows = [tokenizer(text, return_offsets_mapping=True) for text in some_texts(2, 8)]
    hidden = 0
    for seed in range(5):
        torch.manual_seed(seed)
        batch = collator(rows)
        assert "offset_mapping" not in batch
        for row, labels, real in zip(rows, batch["labels"], batch["attention_mask"].bool(), strict=True):
            assert (labels[~real] == -100).all()
            by_word: dict[Any, set[bool]] = {}
            for word, label in zip(row.word_ids(), labels[real].tolist(), strict=True):
                by_word.setdefault(word, set()).add(label != -100)
            assert all(len(found) == 1 for found in by_word.values())
            assert by_word[None] == {False}
            hidden += sum(True in found for found in by_word.values())
    assert hidden > 20


class Rows(torch.utils.data.Dataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("seed", [5, None])
def test_masks_in_worker_processes_are_the_same(transformers: Any, trained: Any, seed: Any, kind: str) -> None:
    options = {"mlm_probability": 0.5, "seed": seed, "return_tensors": kind}
    rows = Rows([dict(trained(text)) for text in some_texts(1, 12)])
    batches = []
    for collator in pair(transformers, DataCollatorForLanguageModeling, trained, **options):
        torch.manual_seed(1)
        loader = DataLoader(rows, batch_size=3, collate_fn=collator, num_workers=2)
        batches.append([described(batch) for batch in loader])
    assert batches[0] == batches[1]


def test_a_seeded_collator_leaves_the_global_generators_alone_and_can_be_pickled(trained: Any) -> None:
    rows = [trained(text) for text in some_texts(1, 6)]
    collator = DataCollatorForLanguageModeling(trained, mlm_probability=0.5, seed=3)
    before = states()
    first = collator(rows)["labels"]
    assert states() == before
    fresh = pickle.loads(pickle.dumps(DataCollatorForLanguageModeling(trained, mlm_probability=0.5, seed=3)))
    assert torch.equal(fresh(rows)["labels"], first)
    assert not torch.equal(collator(rows)["labels"], first)


@pytest.mark.parametrize(
    "options",
    [
        {"mlm_probability": None},
        {"mlm_probability": 1.5},
        {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
        {"mask_replace_prob": -0.1},
        {"random_replace_prob": -0.1},
        {"mlm": False, "whole_word_mask": True},
        {"mlm": False, "random_replace_prob": 1.1},
    ],
    ids=str,
)
def test_shares_that_contradict(transformers: Any, trained: Any, options: Any) -> None:
    with pytest.raises(ValueError):
        transformers.DataCollatorForLanguageModeling(trained, **options)
    with pytest.raises(ConfigError) as caught:
        DataCollatorForLanguageModeling(trained, **options)
    assert isinstance(caught.value, ValueError) and caught.value.why and caught.value.fix


def test_a_causal_collator_needs_no_probability(trained: Any) -> None:
    DataCollatorForLanguageModeling(trained, mlm=False, mlm_probability=None)


def test_whole_words_say_what_they_change_and_need_offsets(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    collator = DataCollatorForLanguageModeling(trained, whole_word_mask=True)
    assert "mask_replace_prob is set to 1" in capsys.readouterr().err
    for rows in ([trained("abc def")], [[5, 6, 7]]):
        with pytest.raises(DataError, match="return_offsets_mapping"):
            collator(rows)


def test_missing_tokens_are_explained(transformers: Any, trained: Any) -> None:
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=trained.backend_tokenizer)
    with pytest.raises(ConfigError, match="no mask token") as caught:
        DataCollatorForLanguageModeling(bare)
    assert isinstance(caught.value, ValueError) and "mlm=False" in caught.value.fix
    collator = DataCollatorForLanguageModeling(bare, mlm=False)
    for rows in ([{"input_ids": [5]}, {"input_ids": [5, 6]}], [[5], [5, 6]]):
        with pytest.raises(ConfigError, match="no pad token"):
            collator(rows)
    assert collator([[5, 6], [7, 8]])["labels"].tolist() == [[5, 6], [7, 8]]


# Permutations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize(
    "options",
    [{}, {"plm_probability": 0.5, "max_span_length": 1}, {"plm_probability": 0.4, "max_span_length": 3}],
    ids=str,
)
def test_permutations_are_the_same(transformers: Any, tokenizer: Any, options: Any, kind: str) -> None:
    ours, theirs = pair(
        transformers, DataCollatorForPermutationLanguageModeling, tokenizer, return_tensors=kind, **options
    )
    hidden = 0
    for seed in range(5):
        rng = random.Random(seed)
        lengths = [rng.randint(1, 24) for _ in range(rng.randint(0, 3))] + [24]
        ids = [[2, *rng.choices(range(1, 121), k=length), 3] for length in lengths]
        batch = assert_same(ours, theirs, [{"input_ids": row, "attention_mask": [1]} for row in ids], seed)
        assert_same(ours, theirs, ids, seed)
        assert_same(ours, theirs, [np.array(row, dtype=np.int32) for row in ids], seed)
        hidden += int((np.asarray(batch["labels"]) != -100).sum())
    assert hidden > 5


def test_permutations_that_are_refused(transformers: Any, trained: Any) -> None:
    ours = DataCollatorForPermutationLanguageModeling
    with pytest.raises(DataError, match="odd"):
        ours(trained)([[5, 6, 7]])
    for options in ({"plm_probability": 0}, {"plm_probability": 2}, {"max_span_length": 0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            ours(trained, **options)
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=trained.backend_tokenizer)
    with pytest.raises(ConfigError, match="no mask token") as caught:
        ours(bare)([[5, 6]])
    assert isinstance(caught.value, ValueError) and caught.value.fix
    with pytest.raises(ConfigError, match="no pad token"):
        ours(bare)([[5, 6], [5, 6, 7, 8]])
