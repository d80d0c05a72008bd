"""What a user sees when the data is wrong: the whole text, through `Trainer(...).train()`, before the first step.

Every mistake is also made with transformers: an `except` that catches its error catches ours.
"""

# ruff: noqa: E501  (texts are as wide as they are)

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer of a process imports it, and it changes the environment
from torch import nn
from torch.utils.data import Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from ostinato.core.notices import forget_notices
from tests.support import tiny
from tests.support.apis import Api, guest
from tests.support.references import recall


class Classifier(nn.Module):
    """Takes what models of tokens take, and looks at the first token only."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tiny.VOCAB, 3)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        if input_ids is None:
            raise ValueError("You must specify input_ids")  # as models of transformers do
        logits = self.embedding(input_ids)[:, 0]
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Tagger(Classifier):
    """One label for every token."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        logits = self.embedding(input_ids)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


# Data ----------------------------------------------------------------------------------------------------------------

EVEN = [{"input_ids": [3, 4, 5], "labels": number % 3} for number in range(8)]
RAGGED = [{"input_ids": [3, 4, 5, 6, 7][: 2 + number % 3], "labels": number % 3} for number in range(8)]
TEXTS = [{"text": f"w{number} is a word", "label": number % 3} for number in range(8)]
TAGGED = [{"input_ids": row["input_ids"], "labels": [1] * len(row["input_ids"])} for row in RAGGED]
NUMBERS = tiny.regression_rows(8)

MISSING = object()


def changed(rows: list[dict[str, Any]], number: int, **values: Any) -> list[dict[str, Any]]:
    """The rows, with other values in one of them."""
    row = {name: value for name, value in {**rows[number], **values}.items() if value is not MISSING}
    return [*rows[:number], row, *rows[number + 1 :]]


def renamed(rows: list[dict[str, Any]], **names: str) -> list[dict[str, Any]]:
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def table(rows: list[dict[str, Any]]) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.Dataset.from_list(rows)


def tokenizer(**tokens: Any) -> Any:
    found = tiny.tokenizer()
    for name, token in tokens.items():
        setattr(found, name, token)
    return found


class Pictures(Dataset):  # type: ignore[type-arg]
    """One of its files is not there."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 3:
            raise FileNotFoundError(2, "No such file or directory", "cat.png")
        return EVEN[index]


class PicturesAtOnce(Pictures):
    """Reads the rows of a batch together."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


class Lines(IterableDataset):  # type: ignore[type-arg]
    """A stream whose sixth row has no text."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(EVEN):
            yield row if number != 5 else {"input_ids": {}["text"]}


class TooLong(Dataset):  # type: ignore[type-arg]
    """Says that it has more rows than it has."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return EVEN[:3][index]


class Endless(Dataset):  # type: ignore[type-arg]
    """Has rows by number, but does not say how many."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return EVEN[index % 8]


class Forgetful(Dataset):  # type: ignore[type-arg]
    """Returns nothing."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        EVEN[index]


def my_collator(rows: list[Any]) -> dict[str, Any]:
    return {"x": torch.stack([row["x"] for row in rows])}


def empty_sampler(api: Api) -> Any:
    class WithSampler(api.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return SubsetRandomSampler([])

    return WithSampler


# The mistakes --------------------------------------------------------------------------------------------------------

Build = Callable[[Api], dict[str, Any]]
MISTAKES: dict[str, tuple[Build, str]] = {}
NOT_REFUSED_BY_TRANSFORMERS: set[str] = set()


def mistake(text: str, *, theirs: bool = True) -> Callable[[Build], Build]:
    """Note down a mistake and what is said about it. `theirs`: transformers raises an error too."""

    def note_down(build: Build) -> Build:
        MISTAKES[build.__name__] = (build, text.strip("\n"))
        if not theirs:
            NOT_REFUSED_BY_TRANSFORMERS.add(build.__name__)
        return build

    return note_down


# ---- names of columns


@mistake(
    """
DataError: no column of the training set reaches Classifier
  why: the data set has tokens, target; Classifier.forward takes input_ids, attention_mask, labels
  fix: rename 'tokens' to 'input_ids', 'target' to 'labels'
""",
)
def wrong_names_in_rows(api):
    return {"data": renamed(EVEN, input_ids="tokens", labels="target")}


@mistake(
    """
DataError: no column of the training set reaches Classifier
  why: the data set has tokens, target; Classifier.forward takes input_ids, attention_mask, labels
  fix: dataset = dataset.rename_columns({"tokens": "input_ids", "target": "labels"})
""",
)
def wrong_names_in_a_table(api):
    return {"data": table(renamed(EVEN, input_ids="tokens", labels="target"))}


@mistake(
    """
DataError: no column of the training set reaches Classifier
  why: the data set has tokens, target; Classifier.forward takes input_ids, attention_mask, labels
  fix: rename 'tokens' to 'input_ids', 'target' to 'labels'
""",
)
def wrong_names_in_a_torch_data_set(api):
    return {"data": tiny.MapDataset(renamed(EVEN, input_ids="tokens", labels="target"))}


@mistake(
    """
DataError: only 'labels' of the training set reaches Classifier
  why: the data set has labels, tokens; Classifier.forward takes input_ids, attention_mask, labels
  fix: rename 'tokens' to 'input_ids'
""",
)
def one_wrong_name(api):
    return {"data": renamed(EVEN, input_ids="tokens")}


@mistake(
    """
MissingInputError: Regression.forward needs 'x', which no column supplies
  why: the batch has labels; the data set also has inputs, which forward does not take
  fix: rename 'inputs' to 'x', or let a data_collator add 'x'
""",
)
def one_wrong_name_for_a_plain_model(api):
    return {"model": tiny.regression(), "data": renamed(NUMBERS, x="inputs")}


@mistake(
    """
KeyError: 'text'
ostinato: while rows 0, 1, 2, 3 of the training set (8 rows) were read
ostinato: column 'text' was left out, because the model's forward does not take it; if a transform needs it, set remove_unused_columns=False
""",
)
def a_transform_whose_column_is_left_out(api):
    data = table(TEXTS)
    data.set_transform(lambda rows: {"input_ids": [[3] for _ in rows["text"]], "label": rows["label"]})
    return {"data": data}


# ---- text


@mistake(
    """
DataError: the training set looks like raw text: only 'label' reaches Classifier
  why: 'text' holds text that was never tokenized; Classifier takes input_ids
  fix: dataset = dataset.map(lambda row: tokenizer(row["text"], truncation=True), batched=True)
""",
)
def raw_text_in_a_table(api):
    return {"data": table(TEXTS)}


@mistake(
    """
DataError: the training set looks like raw text: only 'label' reaches Classifier
  why: 'text' holds text that was never tokenized; Classifier takes input_ids
  fix: replace every row by {**row, **tokenizer(row["text"], truncation=True)}
""",
)
def raw_text_in_rows(api):
    return {"data": TEXTS}


@mistake(
    """
DataError: the training set looks like raw text: only 'label' reaches Classifier
  why: 'text' holds text that was never tokenized; Classifier takes input_ids
  fix: replace every row by {**row, **tokenizer(row["text"], truncation=True)}
""",
)
def raw_text_in_a_stream(api):
    return {"data": tiny.StreamDataset(TEXTS), "args": {"max_steps": 2}}


@mistake(
    """
MissingColumnError: the training set looks like raw text: row 0 has text, label, no 'input_ids'
  why: 'text' holds text that was never tokenized ('w0 is a word')
  fix: dataset = dataset.map(lambda row: tokenizer(row["text"], truncation=True), batched=True)
""",
)
def raw_text_for_the_tokenizer(api):
    return {"data": table(TEXTS), "processing_class": tokenizer(), "args": {"remove_unused_columns": False}}


@mistake(
    """
WrongValueError: 'input_ids' of the training set is raw text (row 0: 'w0 is a word')
  why: 'input_ids' are token ids; the text was never tokenized
  fix: replace every row by {**row, **tokenizer(row["input_ids"], truncation=True)}
""",
)
def text_in_the_place_of_tokens(api):
    return {"data": renamed(TEXTS, text="input_ids"), "processing_class": tokenizer()}


@mistake(
    """
WrongValueError: column 'text' of the training set holds text (row 0: 'w3 w4')
  why: DataCollatorWithPadding makes one tensor of every column, and tensors hold numbers only
  fix: dataset = dataset.remove_columns("text"), or set remove_unused_columns=True, which leaves out what the model does not take
""",
)
def text_beside_tokens(api):
    rows = [{**row, "text": "w3 w4"} for row in RAGGED]
    return {"data": table(rows), "processing_class": tokenizer(), "args": {"remove_unused_columns": False}}


@mistake(
    """
NotARowError: row 0 of the training set is text ('w3 w4'), not a dict
  why: a model takes numbers, by name
  fix: tokenize the texts: rows = [tokenizer(text, truncation=True) for text in texts]
""",
)
def texts_for_rows(api):
    return {"data": ["w3 w4", "w5"] * 4, "processing_class": tokenizer()}


# ---- values


@mistake(
    """
WrongValueError: 'labels' of row 2 of the training set is text: '2'
  why: other rows have int there, and tensors hold numbers only
  fix: convert it to a number, or leave the row out
""",
)
def text_in_one_row(api):
    return {"data": changed(EVEN, 2, labels="2")}


@mistake(
    """
WrongValueError: 'labels' of row 2 of the training set is text: '2'
  why: other rows have int there, and tensors hold numbers only
  fix: convert it to a number, or leave the row out
""",
)
def text_in_one_row_that_is_padded(api):
    return {"data": changed(RAGGED, 2, labels="2"), "processing_class": tokenizer()}


@mistake(
    """
WrongValueError: 'input_ids' of row 2 of the training set holds text: 'w4'
  why: other rows have list of int there, and tensors hold numbers only
  fix: convert it to a number, or leave the row out
""",
)
def text_among_tokens(api):
    return {"data": changed(EVEN, 2, input_ids=[3, "w4", 5])}


@mistake(
    """
WrongValueError: column 'label' of the training set holds text (row 0: 'good'), not numbers
  why: a loss is computed from class numbers
  fix: number the classes: dataset = dataset.class_encode_column("label")
""",
)
def classes_by_name(api):
    return {"data": table([{"input_ids": row["input_ids"], "label": "good"} for row in EVEN])}


@mistake(
    """
WrongValueError: column 'label' of the training set holds text (row 0: 'good'), not numbers
  why: a loss is computed from class numbers
  fix: number the classes: classes.index(row['label'])
""",
)
def classes_by_name_in_rows_that_are_padded(api):
    rows = [{"input_ids": row["input_ids"], "label": "good"} for row in RAGGED]
    return {"data": rows, "processing_class": tokenizer()}


@mistake(
    """
WrongValueError: 'labels' of row 2 of the training set is None
  why: other rows have int there, and tensors hold numbers only
  fix: fill it in, or leave out the rows where row['labels'] is None
""",
)
def none_in_one_row(api):
    return {"data": changed(EVEN, 2, labels=None)}


@mistake(
    """
WrongValueError: 'labels' of row 2 of the training set is None
  why: other rows have int there, and tensors hold numbers only
  fix: fill it in, or leave out the rows where row['labels'] is None
""",
)
def none_in_one_row_that_is_padded(api):
    return {"data": table(changed(RAGGED, 2, labels=None)), "processing_class": tokenizer()}


@mistake(
    """
WrongValueError: column 'attention_mask' of the training set is None (row 0 and all others of its batch)
  why: DataCollatorWithPadding makes one tensor of every column, and tensors hold numbers only
  fix: dataset = dataset.remove_columns("attention_mask")
""",
)
def none_in_every_row(api):
    rows = [{**row, "attention_mask": None} for row in RAGGED]
    return {"data": table(rows), "processing_class": tokenizer()}


@mistake(
    """
WrongValueError: 'input_ids' of row 2 of the training set is an object
  why: other rows have list of int there, and tensors hold numbers only
  fix: convert it to a number, or leave the row out
""",
)
def an_object_in_one_row(api):
    return {"data": changed(EVEN, 2, input_ids=object())}


# ---- lengths


@mistake(
    """
RaggedError: 'input_ids' has different lengths in the rows of the training set
  why: row 0 has 2, row 1 has 3, row 2 has 4; default_data_collator stacks them in one tensor and does not pad 'input_ids'
  fix: pass a tokenizer (processing_class=), or data_collator=DataCollatorWithPadding(tokenizer)
""",
)
def rows_of_different_lengths(api):
    return {"data": RAGGED}


@mistake(
    """
RaggedError: 'input_ids' has different lengths in the rows of the training set
  why: row 0 has 2, row 1 has 3, row 2 has 4; default_data_collator stacks them in one tensor and does not pad 'input_ids'
  fix: pass a tokenizer (processing_class=), or data_collator=DataCollatorWithPadding(tokenizer)
""",
)
def tensors_of_different_lengths(api):
    return {"data": table(RAGGED).with_format("torch")}


@mistake(
    """
RaggedError: 'x' has different shapes in the rows of the training set
  why: row 0 has (3, 2, 2), row 3 has (1, 2, 2); default_data_collator stacks them in one tensor
  fix: convert all to one shape in the data set; images to one size and one number of channels
""",
)
def pictures_of_different_shapes(api):
    rows = changed([{"x": torch.ones(3, 2, 2), "labels": 1.0}] * 8, 3, x=torch.ones(1, 2, 2))
    return {"model": tiny.regression(), "data": rows}


@mistake(
    """
WrongValueError: 'input_ids' of row 2 of the training set is a single value (5)
  why: 'input_ids' of row 0 is a list of 2, and all rows of a batch need the same form
  fix: give 'input_ids' the same form in every row
""",
)
def a_number_for_a_list(api):
    return {"data": changed(RAGGED, 2, input_ids=5), "processing_class": tokenizer()}


@mistake(
    """
RaggedError: row 2 of the training set has 4 input_ids and 1 attention_mask
  why: 'attention_mask' has one value for each of 'input_ids', so both must have the same length
  fix: take both from the same call of the tokenizer, and truncate both to the same length
""",
)
def a_mask_of_another_length(api):
    rows = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in RAGGED]
    return {"data": changed(rows, 2, attention_mask=[1]), "processing_class": tokenizer()}


@mistake(
    """
RaggedError: 'input_ids' of row 0 of the training set has the shape (1, 2) instead of (2,)
  why: each row is a batch of one, which is what tokenizer(text, return_tensors="pt") returns
  fix: leave return_tensors out of the tokenizer call in the data set, or take row['input_ids'][0]
""",
)
def each_row_a_batch_of_one(api):
    rows = [{**row, "input_ids": torch.tensor([row["input_ids"]])} for row in RAGGED]
    return {"data": rows, "processing_class": tokenizer()}


@mistake(
    """
RaggedError: 'labels' has different lengths in the rows of the training set
  why: row 0 has 2, row 1 has 3, row 2 has 4; DataCollatorWithPadding stacks them in one tensor and does not pad 'labels'
  fix: pass data_collator=DataCollatorForTokenClassification(tokenizer), or for a language model DataCollatorForLanguageModeling(tokenizer, mlm=False)
""",
)
def labels_that_nobody_pads(api):
    return {"model": Tagger(), "data": TAGGED, "processing_class": tokenizer()}


@mistake(
    """
RaggedError: 'labels' has different lengths in the rows of the training set
  why: row 0 has 2, row 1 has 3, row 2 has 4; DataCollatorWithPadding stacks them in one tensor and does not pad 'labels'
  fix: pass data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), which pads labels of any length
""",
)
def targets_that_nobody_pads(api):
    rows = [{"input_ids": [3, 4, 5], "labels": [1] * (2 + number)} for number in range(8)]
    return {"model": Tagger(), "data": rows, "processing_class": tokenizer()}


@mistake(
    """
RaggedError: row 2 of the training set has 4 tokens and 9 labels
  why: every token needs one; usually the tokens were truncated and the labels were not
  fix: align the labels with tokenizer(words, is_split_into_words=True, truncation=True).word_ids(); -100 for tokens that do not count
""",
)
def more_labels_than_tokens(api):
    collator = api.DataCollatorForTokenClassification(tokenizer())
    return {"model": Tagger(), "data": changed(TAGGED, 2, labels=[1] * 9), "data_collator": collator}


@mistake(
    """
RaggedError: row 2 of the training set has 3 tokens and 2 labels
  why: other rows have as many labels as tokens; usually the labels of words were not aligned to sub-words
  fix: align them; targets of another length than the input need DataCollatorForSeq2Seq(tokenizer, model=model)
""",
)
def fewer_labels_than_tokens(api):
    rows = [{"input_ids": [3, 4, 5], "labels": [1, 1, 1]}] * 8
    return {"model": Tagger(), "data": changed(rows, 2, labels=[1, 1])}


@mistake(
    """
WrongValueError: 'labels' of row 0 of the training set is text: 'w3'
  why: labels are numbers, one for every token
  fix: tokenize targets too: tokenizer(text, text_target=target, truncation=True) returns them as labels
""",
)
def targets_that_are_text(api):
    collator = api.DataCollatorForSeq2Seq(tokenizer())
    return {"model": Tagger(), "data": [{"input_ids": [3, 4], "labels": "w3"}] * 8, "data_collator": collator}


# ---- tokenizers


@mistake(
    """
NoPadTokenError: the tokenizer (TokenizersBackend) has no pad token, so rows cannot be padded to one length
  why: the rows of a batch have the same length; short rows are filled with the pad token
  fix: set tokenizer.pad_token = tokenizer.eos_token
""",
)
def no_pad_token(api):
    return {"data": RAGGED, "processing_class": tokenizer(eos_token="w3", pad_token=None)}


@mistake(
    """
NoPadTokenError: the tokenizer (TokenizersBackend) has no pad token, so rows cannot be padded to one length
  why: the rows of a batch have the same length; short rows are filled with the pad token
  fix: tokenizer.add_special_tokens({'pad_token': '[PAD]'}), and model.resize_token_embeddings(len(tokenizer))
""",
)
def no_pad_token_and_no_end(api):
    collator = api.DataCollatorForLanguageModeling(tokenizer(pad_token=None), mlm=False)
    return {"model": Tagger(), "data": [{"input_ids": row["input_ids"]} for row in RAGGED], "data_collator": collator}


# ---- rows


@mistake(
    """
MissingColumnError: row 3 of the training set has no 'labels'
  why: row 0, the first of the batch, has it; row 3 has input_ids
  fix: give every row its 'labels', or leave such rows out
""",
)
def a_row_without_a_column(api):
    return {"data": changed(EVEN, 3, labels=MISSING)}


@mistake(
    """
MissingColumnError: row 3 of the training set has no 'labels'
  why: row 0, the first of the batch, has it; row 3 has input_ids
  fix: give every row its 'labels', or leave such rows out
""",
)
def a_row_without_a_column_that_is_padded(api):
    return {"data": changed(RAGGED, 3, labels=MISSING), "processing_class": tokenizer()}


@mistake(
    """
MissingColumnError: row 3 of the training set has no 'labels'
  why: row 0, the first of the batch, has it; row 3 has input_ids, label
  fix: rename 'label' to 'labels'
""",
)
def a_row_with_another_name(api):
    return {"data": changed(EVEN, 3, labels=MISSING, label=1)}


@mistake(
    """
NotARowError: row 0 of the training set is a tuple of Tensor and Tensor, not a dict
  why: the model is called with keyword arguments, so every value needs a name
  fix: let the data set return dicts, such as {"x": ..., "labels": ...}, or pass a data_collator that converts such rows to dicts
""",
)
def rows_of_a_tensor_data_set(api):
    return {"model": tiny.regression(), "data": TensorDataset(torch.ones(8, 4), torch.ones(8))}


@mistake(
    """
NotARowError: row 0 of the training set is a tuple of list and int, not a dict
  why: the model is called with keyword arguments, so every value needs a name
  fix: let the data set return dicts, such as {"input_ids": ..., "labels": ...}, or pass a data_collator that converts such rows to dicts
""",
)
def rows_that_are_tuples_for_the_tokenizer(api):
    return {"data": [([3, 4], 1)] * 8, "processing_class": tokenizer()}


@mistake(
    """
NotARowError: row 0 of the training set is a Tensor, not a dict
  why: the model is called with keyword arguments, so every value needs a name
  fix: let the data set return dicts, such as {"x": ..., "labels": ...}, or pass a data_collator that converts such rows to dicts
""",
)
def tensors_for_a_data_set(api):
    return {"model": tiny.regression(), "data": (torch.ones(8, 4), torch.ones(8))}


@mistake(
    """
NotARowError: row 0 of the training set is None
  why: the data set's __getitem__ returned nothing, or the list holds None
  fix: let every row be a dict, such as {"input_ids": ..., "labels": ...}
""",
)
def a_forgotten_return(api):
    return {"data": Forgetful()}


# ---- data sets


@mistake(
    """
DataError: the training set is empty
  why: it has 0 rows
  fix: check the split, the filter or the slice that produced it
""",
)
def no_rows(api):
    return {"data": []}


@mistake(
    """
NotADataSetError: the training set is a dict of data sets: 'train' and 'test'
  why: rows are read by number, and these are names of splits
  fix: pass one of them: dataset['train']
""",
)
def a_dict_of_splits(api):
    return {"data": {"train": EVEN, "test": EVEN}}


@mistake(
    """
NotADataSetError: the training set is a dict of data sets: 'validation' and 'train'
  why: rows are read by number, and these are names of splits
  fix: pass one of them: dataset['train']
""",
)
def a_dataset_dict(api):
    datasets = pytest.importorskip("datasets")
    return {"data": datasets.DatasetDict({"validation": table(EVEN), "train": table(EVEN)})}


@mistake(
    """
NotADataSetError: the training set is a dict of columns: 'input_ids' and 'labels'
  why: rows are read by number; a slice like dataset[:100] or tokenizer(texts) returns columns
  fix: convert them to rows: datasets.Dataset.from_dict(dict(columns)); instead of a slice, use dataset.select(range(100))
""",
)
def a_slice_of_a_table(api):
    return {"data": table(EVEN)[:4]}


@mistake(
    """
NotADataSetError: the training set is a pandas DataFrame
  why: its [0] is a column, not a row
  fix: pass datasets.Dataset.from_pandas(frame), or frame.to_dict('records')
""",
)
def a_data_frame(api):
    pandas = pytest.importorskip("pandas")
    return {"data": pandas.DataFrame(EVEN)}


@mistake(
    """
NotADataSetError: the training set is the class Pictures, not a data set
  why: a class has no rows; its instances have
  fix: pass an instance: Pictures(...)
""",
)
def a_class_for_a_data_set(api):
    return {"data": Pictures, "args": {"max_steps": 2}}


@mistake(
    """
NotADataSetError: the training set is the function my_collator
  why: it has neither __getitem__ nor __iter__
  fix: call it, and pass what it returns
""",
    theirs=False,
)
def a_function_for_a_data_set(api):
    return {"data": my_collator, "args": {"max_steps": 2}}


@mistake(
    """
NotADataSetError: the training set (Endless) has __getitem__ but no __len__
  why: rows are read by number, from 0 to the length
  fix: give Endless a __len__, or make it an IterableDataset with __iter__
""",
)
def no_length(api):
    return {"data": Endless(), "args": {"max_steps": 2}}


@mistake(
    """
DataError: the training set has too few rows for one batch
  why: it has 3 rows, a batch over all processes takes 4, and dataloader_drop_last=True drops incomplete batches
  fix: set dataloader_drop_last=False, or a batch size of at most 3
""",
)
def fewer_rows_than_a_batch(api):
    return {"data": EVEN[:3], "args": {"dataloader_drop_last": True}}


@mistake(
    """
DataError: the sampler of the training set yields no rows
  why: its length is 0, although the data set has rows
  fix: check the indices or weights of the sampler
""",
)
def a_sampler_without_rows(api):
    return {"data": EVEN, "trainer": empty_sampler(api)}


@mistake(
    """
DataError: the training set yielded no batch
  why: it ended before its first row
  fix: check its files, its filter or its sampler; a generator can be read only once
""",
)
def a_stream_without_rows(api):
    return {"data": tiny.StreamDataset([]), "args": {"max_steps": 2}}


@mistake(
    """
DataError: the training set yielded no batch
  why: it ended before a batch of 4 rows was full, and dataloader_drop_last=True drops the rest
  fix: set dataloader_drop_last=False, or a smaller batch size
""",
    theirs=False,
)
def a_stream_shorter_than_a_batch(api):
    return {"data": tiny.StreamDataset(EVEN[:3]), "args": {"max_steps": 2, "dataloader_drop_last": True}}


@mistake(
    """
DataError: row 0 of the training set has no 'input_ids', whose length decides the order
  why: it has 'ids' and 'labels'
  fix: add a column of lengths and name it in length_column_name, or use train_sampling_strategy='random'
""",
)
def lengths_that_nobody_knows(api):
    rows = renamed(EVEN, input_ids="ids")
    return {"data": rows, "args": {"train_sampling_strategy": "group_by_length"}}


# ---- errors of the user's own code


@mistake(
    """
FileNotFoundError: [Errno 2] No such file or directory: 'cat.png'
ostinato: while row 3 of the training set (8 rows) was read
""",
)
def a_row_that_cannot_be_read(api):
    return {"data": Pictures()}


@mistake(
    """
FileNotFoundError: [Errno 2] No such file or directory: 'cat.png'
ostinato: while rows 0, 1, 2, 3 of the training set (8 rows) were read
""",
)
def rows_that_cannot_be_read_together(api):
    return {"data": PicturesAtOnce()}


@mistake(
    """
FileNotFoundError: [Errno 2] No such file or directory: 'cat.png'
ostinato: while row 3 of the training set (8 rows) was read by worker 0
""",
)
def a_row_that_a_worker_cannot_read(api):
    return {"data": Pictures(), "args": {"dataloader_num_workers": 2}}


@mistake(
    """
IndexError: list index out of range
ostinato: while row 3 of the training set (its __len__ is 5) was read
""",
)
def an_index_that_is_not_there(api):
    return {"data": TooLong()}


@mistake(
    """
KeyError: 'text'
ostinato: after 5 rows of the training set had been read
""",
)
def a_stream_that_breaks(api):
    return {"data": Lines(), "args": {"max_steps": 2}}


@mistake(
    """
KeyError: 'text'
ostinato: after 5 rows of the training set (share of worker 0) had been read
""",
)
def a_stream_that_breaks_in_a_worker(api):
    return {"data": Lines(), "args": {"max_steps": 2, "dataloader_num_workers": 1}}


@mistake(
    """
TypeError: expected Tensor as element 0 in argument 0, but got list
ostinato: while rows 0, 1, 2, 3 of the training set were collated by my_collator
""",
)
def a_collator_that_fails(api):
    return {"model": tiny.regression(), "data": NUMBERS, "data_collator": my_collator}


@mistake(
    """
TypeError: expected Tensor as element 0 in argument 0, but got list
ostinato: while rows 0, 1, 2, 3 of the training set were collated by my_collator
""",
)
def a_collator_that_fails_in_a_worker(api):
    return {
        "model": tiny.regression(),
        "data": NUMBERS,
        "data_collator": my_collator,
        "args": {"dataloader_num_workers": 1},
    }


@mistake(
    """
CollatorError: data_collator is the class DataCollatorWithPadding, not an instance of it
  why: it is called with rows, and a class would take them as the arguments of a new instance
  fix: pass data_collator=DataCollatorWithPadding(...)
""",
)
def a_collator_that_is_a_class(api):
    return {"data": RAGGED, "data_collator": api.DataCollatorWithPadding}


@mistake(
    """
RaggedError: 'input_ids' has different lengths in the rows of the training set
  why: row 0 has 2, row 1 has 3, row 2 has 4; default_data_collator stacks them in one tensor and does not pad 'input_ids'
  fix: pass a tokenizer (processing_class=), or data_collator=DataCollatorWithPadding(tokenizer)
""",
)
def a_mistake_in_a_worker(api):
    return {"data": RAGGED, "args": {"dataloader_num_workers": 2}}


# ---- other data sets than the one for training


@mistake(
    """
FileNotFoundError: [Errno 2] No such file or directory: 'cat.png'
ostinato: while row 3 of the evaluation set (8 rows) was read
""",
)
def a_row_that_evaluation_cannot_read(api):
    return {"data": EVEN, "call": lambda trainer: trainer.evaluate(Pictures())}


@mistake(
    """
FileNotFoundError: [Errno 2] No such file or directory: 'cat.png'
ostinato: while row 3 of the prediction set (8 rows) was read
""",
)
def a_row_that_prediction_cannot_read(api):
    return {"data": EVEN, "call": lambda trainer: trainer.predict(Pictures())}


@mistake(
    """
RaggedError: 'input_ids' has different lengths in the rows of the evaluation set
  why: row 0 has 2, row 1 has 3, row 2 has 4; default_data_collator stacks them in one tensor and does not pad 'input_ids'
  fix: pass a tokenizer (processing_class=), or data_collator=DataCollatorWithPadding(tokenizer)
""",
)
def rows_of_different_lengths_in_evaluation(api):
    return {"data": EVEN, "call": lambda trainer: trainer.evaluate(RAGGED)}


@mistake(
    """
NotADataSetError: the prediction set is a dict of data sets: 'train' and 'test'
  why: rows are read by number, and these are names of splits
  fix: pass one of them: dataset['test']
""",
)
def splits_for_prediction(api):
    splits = {"train": EVEN, "test": EVEN}
    return {"data": EVEN, "call": lambda trainer: trainer.predict(splits)}


# The tests -----------------------------------------------------------------------------------------------------------


def fail(api: Api, build: Build) -> tuple[Any, Exception]:
    """Make the mistake: rows come in order, four in a batch."""
    given = {"model": Classifier(), "trainer": api.Trainer, "call": lambda trainer: trainer.train(), **build(api)}
    arguments = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 4, **given.pop("args", {})}
    make, call, data = given.pop("trainer"), given.pop("call"), given.pop("data")
    trainer = make(args=api.args(num_train_epochs=1, **arguments), train_dataset=data, **given)
    trainer.remove_callback(api.PrinterCallback)
    with pytest.raises(Exception) as caught:
        call(trainer)
    return trainer, caught.value


def said(error: BaseException) -> str:
    """What Python prints of an error, without the module of its class."""
    lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def fresh_notices() -> Iterator[None]:
    forget_notices()
    yield
    forget_notices()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", MISTAKES)
def test_the_whole_text(name: str, ours: Api) -> None:
    build, text = MISTAKES[name]
    trainer, error = fail(ours, build)
    assert said(error) == text
    assert trainer.state.global_step == 0


# Workers do not change the type of an error, and those of torch take seconds to die with one.
COMPARED = [name for name in MISTAKES if name not in NOT_REFUSED_BY_TRANSFORMERS and "worker" not in name]


@pytest.mark.parametrize("name", COMPARED)
def test_what_catches_transformers_error_catches_ours(name: str, ours: Api, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    build, _ = MISTAKES[name]

    def run() -> type[Exception]:
        with guest("transformers"):
            return type(fail(Api("transformers", tmp_path), build)[1])

    theirs = recall(run)
    assert isinstance(fail(ours, build)[1], theirs), theirs.__name__
