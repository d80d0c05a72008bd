"""What a beginner does wrong with models, labels and metrics: every text word by word, and no optimizer step taken."""

from __future__ import annotations

import copy
import inspect
import math
import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.notices import forget_notices
from tests.support import tiny
from tests.support.apis import load_library
from tests.support.quiet_trainer import build_quiet_trainer

pytest.importorskip("transformers")
load_library("transformers")

PACKAGE = str(Path(ostinato.__file__).parent)
LIMIT = 6  # frames of ours that a reader has to skip


# ------------------------------------------------------------------------------------------------------ the workshop


class Net(nn.Module):
    """Classifies four numbers into three classes; `answer(logits, loss)` is what forward returns."""

    def __init__(self, answer: Callable[..., Any] | None = None, out: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, out)
        self.answer = answer or (lambda logits, loss: {"loss": loss, "logits": logits})

    def forward(self, x: Any, labels: Any = None) -> Any:
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return self.answer(logits, loss)


def net(answer: Callable[..., Any] | None = None, kind: type[Net] = Net, **options: Any) -> Net:
    return tiny.seeded(kind, answer, **options)


def rows(n: int = 8, **more: Any) -> list[dict[str, Any]]:
    return [{"x": row["x"], "labels": i % 3, **more} for i, row in enumerate(tiny.regression_rows(n))]


def renamed(data: list[dict[str, Any]], old: str, new: str) -> list[dict[str, Any]]:
    return [{new if name == old else name: value for name, value in row.items()} for row in data]


def without(data: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != name} for row in data]


def with_value(data: list[dict[str, Any]], name: str, value: Any, *at: int) -> list[dict[str, Any]]:
    return [{**row, name: value} if not at or i in at else row for i, row in enumerate(data)]


@dataclass
class Workshop:
    """Builds trainers and remembers the last one, with the weights it began with."""

    directory: Path
    trainer: Any = None
    before: dict[str, torch.Tensor] = field(default_factory=dict)

    def build(self, model: nn.Module, data: Any = None, *, kind: type = ostinato.Trainer, **rest: Any) -> Any:
        given: dict[str, Any] = dict(
            max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4, save_strategy="no",
            train_sampling_strategy="sequential", train_dataset=data,
        )  # fmt: skip
        self.trainer = build_quiet_trainer(self.directory, model, cls=kind, **{**given, **rest})
        self.before = copy.deepcopy(model.state_dict())
        return self.trainer

    def fit(self, model: nn.Module, data: Any, **rest: Any) -> None:
        self.build(model, data, **rest).train()

    def measured(self, metric: Callable[..., Any], model: nn.Module | None = None, **rest: Any) -> None:
        """Train with an evaluation in every step."""
        options = {"eval_dataset": rows(6), "eval_strategy": "steps", "eval_steps": 1, **rest}
        self.fit(model or net(), rows(), compute_metrics=metric, **options)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@dataclass(frozen=True)
class Mistake:
    """Something done wrong, what is said about it, and as which built-in types it can be caught."""

    do: Callable[[Workshop], Any]
    text: str
    kinds: tuple[type[Exception], ...]
    steps: int


MISTAKES: dict[str, Mistake] = {}


def mistake(text: str, *kinds: type[Exception], steps: int = 0) -> Callable[[Callable[[Workshop], Any]], None]:
    def register(do: Callable[[Workshop], Any]) -> None:
        MISTAKES[do.__name__] = Mistake(do, inspect.cleandoc(text), kinds, steps)

    return register


def render_error(error: BaseException) -> str:
    """What Python prints below the traceback, without the name of the type."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def our_frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if frame.filename.startswith(PACKAGE)]


# ------------------------------------------------------------------------------------------------- labels and tokens


@mistake(
    """
    label 2 in column 'labels' is out of range: BertForSequenceClassification has 2 classes, 0 to 1
      why: it is in rows 0, 1 of the training set; the labels of this batch range from 0 to 2
      fix: load the model with num_labels=3 or more, or map the labels to 0..1
    """,
    IndexError,
)
def more_classes_than_num_labels(shop):
    shop.fit(tiny.bert(num_labels=2), tiny.classification_rows(8, num_labels=3))


@mistake(
    """
    label 3 in column 'labels' is out of range: BertForSequenceClassification has 3 classes, 0 to 2
      why: it is in rows 0, 1 of the training set; the labels of this batch range from 1 to 3
      fix: load the model with num_labels=4 or more, or map the labels to 0..2 (subtract 1 if they start at 1)
    """,
    IndexError,
)
def classes_counted_from_one(shop):
    data = tiny.classification_rows(8)
    shop.fit(tiny.bert(), [{**row, "labels": row["labels"] + 1} for row in data])


@mistake(
    """
    label -1 in column 'labels' is out of range: BertForSequenceClassification has 3 classes, 0 to 2
      why: it is in row 6 of the training set; the labels of this batch range from -1 to 2
      fix: use -100 for labels to ignore, and count classes from 0
    """,
    IndexError,
    steps=1,
)
def a_negative_label_in_the_second_batch(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "labels", -1, 6))


@mistake(
    """
    labels are floats (float32), and BertForSequenceClassification has 3 classes
      why: one float per row is a regression, which has one output; a class is an integer
      fix: convert the labels to integers, or load the model with num_labels=1 for a regression
    """,
    ValueError,
    RuntimeError,
)
def float_labels_for_classes(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "labels", 0.5))


@mistake(
    """
    labels are floats (float32), and must be class indices
      why: problem_type='single_label_classification': one of 3 classes per row
      fix: convert them to integers; for a regression, load the model with num_labels=1
    """,
    RuntimeError,
)
def float_labels_for_a_single_label_problem(shop):
    model = tiny.bert(problem_type="single_label_classification")
    shop.fit(model, with_value(tiny.classification_rows(8), "labels", 1.0))


@mistake(
    """
    labels are integers (int64), and must be floats
      why: problem_type='multi_label_classification' compares each class with 0.0 or 1.0
      fix: convert them to floats, for instance [1.0, 0.0, 0.0]
    """,
    RuntimeError,
)
def integer_labels_for_several_classes(shop):
    model = tiny.bert(problem_type="multi_label_classification")
    shop.fit(model, with_value(tiny.classification_rows(8), "labels", [1, 0, 1]))


@mistake(
    """
    labels have shape (4, 2), and BertForSequenceClassification computes 3 logits per row
      why: problem_type='multi_label_classification' compares each logit with its own label
      fix: use 3 floats per row, for instance [1.0, 0.0, 0.0]
    """,
    ValueError,
)
def too_few_labels_for_several_classes(shop):
    model = tiny.bert(problem_type="multi_label_classification")
    shop.fit(model, with_value(tiny.classification_rows(8), "labels", [1.0, 0.0]))


@mistake(
    """
    labels have shape (4, 3), and BertForSequenceClassification predicts one of 3 classes per row
      why: the batch has 4 rows and 12 labels
      fix: use the index of the class, or floats with problem_type='multi_label_classification'
    """,
    ValueError,
)
def one_hot_integers(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "labels", [1, 0, 0]))


@mistake(
    """
    labels have shape (4, 8), and BertForSequenceClassification predicts one of 3 classes per row
      why: the batch has 4 rows and 32 labels
      fix: use BertForTokenClassification for one label per token
    """,
    ValueError,
)
def token_labels_for_a_sequence_model(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "labels", [0] * 8))


@mistake(
    """
    labels have shape (4,), input_ids (4, 8): BertForTokenClassification expects one label per token
      why: there is one label per row
      fix: use a SequenceClassification model for one label per row
    """,
    ValueError,
)
def a_sequence_label_for_a_token_model(shop):
    shop.fit(tiny.bert("TokenClassification"), tiny.classification_rows(8))


@mistake(
    """
    labels have shape (4, 6), input_ids (4, 8): BertForTokenClassification expects one label per token
      why: they may be labels of words instead of tokens, or not padded
      fix: align them with word_ids(), -100 for special tokens; DataCollatorForTokenClassification pads them
    """,
    ValueError,
)
def labels_of_words_instead_of_tokens(shop):
    shop.fit(tiny.bert("TokenClassification"), with_value(tiny.classification_rows(8), "labels", [0] * 6))


@mistake(
    """
    label 3 in column 'labels' is out of range: BertForTokenClassification has 3 classes, 0 to 2
      why: it is in row 2 of the training set; the labels of this batch range from 0 to 3
      fix: load the model with num_labels=4 or more, or map the labels to 0..2
    """,
    IndexError,
)
def a_tag_out_of_range(shop):
    data = with_value(tiny.classification_rows(8), "labels", [-100, 0, 1, 2, 2, 1, 3, -100], 2)
    data = [row if i == 2 else {**row, "labels": [0] * 8} for i, row in enumerate(data)]
    shop.fit(tiny.bert("TokenClassification"), data)


@mistake(
    """
    token 45 in column 'input_ids' is out of range: GPT2LMHeadModel has 40 tokens, 0 to 39
      why: it is in rows 1, 3 of the training set
      fix: use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))
    """,
    IndexError,
)
def another_tokenizer(shop):
    shop.fit(tiny.gpt2(), with_value(tiny.language_rows(8), "input_ids", [3] * 11 + [45], 1, 3))


@mistake(
    """
    token 45 in column 'input_ids' is out of range: GPT2LMHeadModel has 40 tokens, 0 to 39
      why: it is in row 1 of the training set
      fix: use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))
    """,
    IndexError,
)
def another_tokenizer_for_a_model_that_does_not_state_its_loss(shop):
    shop.fit(tiny.gpt2(loss_type=None), with_value(tiny.language_rows(8), "input_ids", [3] * 11 + [45], 1))


@mistake(
    """
    token -100 in column 'input_ids' is out of range: BertForSequenceClassification has 40 tokens, 0 to 39
      why: it is in row 0 of the training set
      fix: use -100 in labels only; pad input_ids with the tokenizer's pad_token_id
    """,
    IndexError,
)
def padding_input_with_minus_hundred(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "input_ids", [3] * 7 + [-100], 0))


@mistake(
    """
    label 40 in column 'labels' is out of range: T5ForConditionalGeneration predicts 40 tokens, 0 to 39
      why: it is in row 0 of the training set; the labels of this batch range from 3 to 40
      fix: use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))
    """,
    IndexError,
)
def labels_beyond_the_vocabulary(shop):
    shop.fit(tiny.t5(), with_value(tiny.translation_rows(8), "labels", [3] * 7 + [40], 0))


@mistake(
    """
    labels have shape (4, 11), input_ids (4, 12): GPT2LMHeadModel expects one label per token
      why: labels are compared with the prediction at each position of input_ids
      fix: make labels a copy of input_ids, with -100 at positions to ignore; the model shifts them
    """,
    ValueError,
)
def labels_shifted_by_hand(shop):
    data = tiny.language_rows(8)
    shop.fit(tiny.gpt2(), [{**row, "labels": row["input_ids"][1:]} for row in data])


@mistake(
    """
    rows of 40 tokens in column 'input_ids' are too long: GPT2LMHeadModel has 32 positions
      why: the batch is input_ids (4, 40) int64, attention_mask (4, 40) int64, labels (4, 40) int64
      fix: truncate them in the tokenizer: tokenizer(..., truncation=True, max_length=32)
    """,
    IndexError,
)
def rows_too_long_for_gpt2(shop):
    shop.fit(tiny.gpt2(), tiny.language_rows(8, length=40))


@mistake(
    """
    rows of 40 tokens in column 'input_ids' are too long: BertForSequenceClassification has 32 positions
      why: the batch is input_ids (4, 40) int64, attention_mask (4, 40) int64, labels (4,) int64
      fix: truncate them in the tokenizer: tokenizer(..., truncation=True, max_length=32)
    """,
    RuntimeError,
)
def rows_too_long_for_bert(shop):
    shop.fit(tiny.bert(), tiny.classification_rows(8, length=40))


@mistake(
    """
    column 'input_ids' is float32, and embeddings are indexed by integers
      why: row 0 of the training set has [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
      fix: store integers in the data, or call input_ids.long() in forward
    """,
    RuntimeError,
)
def tokens_as_floats(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "input_ids", [3.0] * 8))


# ---------------------------------------------------------------------------------------------- a model of one's own


@mistake(
    """
    label 7 in column 'labels' is out of range: Net has 3 classes, 0 to 2
      why: it is in row 2 of the training set; the labels of this batch range from 0 to 7
      fix: set the outputs of the last layer to the number of classes, or map the labels to the classes it has
    """,
    IndexError,
)
def a_label_beyond_the_last_layer(shop):
    shop.fit(net(), with_value(rows(), "labels", 7, 2))


@mistake(
    """
    column 'labels' holds floats (float32), and must hold class indices (int64)
      why: cross_entropy in Net compares the predictions with them
      fix: store int64 in the data (row 0 of the training set has 1.0), or call labels.long() in forward
    """,
    RuntimeError,
)
def classes_as_floats(shop):
    shop.fit(net(), with_value(rows(), "labels", 1.0))


class Scores(Net):
    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


@mistake(
    """
    column 'labels' holds integers (int64), and must hold floats
      why: binary_cross_entropy_with_logits in Scores compares the predictions with them
      fix: store floats in the data (row 0 of the training set has [1, 0, 1]), or call labels.float() in forward
    """,
    RuntimeError,
)
def zeros_and_ones_as_integers(shop):
    shop.fit(net(kind=Scores), with_value(rows(), "labels", [1, 0, 1]))


class Flattened(Net):
    def forward(self, x, labels=None):
        logits = self.layer(x).view(-1, 1)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@mistake(
    """
    the shapes of column 'labels' and the predictions do not match
      why: cross_entropy compares logits (12, 1) with labels (4,)
      fix: pass logits (rows, classes) and labels (rows,): check view, reshape and squeeze
    """,
    ValueError,
)
def logits_flattened_too_far(shop):
    shop.fit(net(kind=Flattened), rows())


@mistake(
    """
    column 'x' has 3 features, and layer 'layer' of Net takes 4
      why: the batch is x (4, 3) float32, labels (4,) int64
      fix: use nn.Linear(3, ...), or rows of 'x' with 4 features
    """,
    RuntimeError,
)
def features_of_another_width(shop):
    shop.fit(net(), with_value(rows(), "x", [1.0, 2.0, 3.0]))


@mistake(
    """
    column 'x' is int64, and layer 'layer' of Net computes in float32
      why: the batch is x (4, 4) int64, labels (4,) int64
      fix: store float32 in the data, or call x.float() in forward
    """,
    RuntimeError,
)
def features_as_integers(shop):
    shop.fit(net(), with_value(rows(), "x", [1, 2, 3, 4]))


@mistake(
    """
    column 'x' is float64, and layer 'layer' of Net computes in float32
      why: the batch is x (4, 4) float64, labels (4,) int64
      fix: store float32 in the data, or call x.float() in forward
    """,
    RuntimeError,
)
def features_of_double_precision(shop):
    shop.fit(net(), [{**row, "x": np.array(row["x"])} for row in rows()])


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, pixel_values, labels=None):
        logits = self.conv(pixel_values).mean((2, 3))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@mistake(
    """
    column 'pixel_values' has 8 channels, and layer 'conv' of Picture takes 3
      why: it has shape (4, 8, 8, 3), read as (rows, channels, ...)
      fix: move the channels to dimension 1: pixel_values.permute(0, 3, 1, 2)
    """,
    RuntimeError,
)
def channels_last(shop):
    data = [{"pixel_values": torch.zeros(8, 8, 3), "labels": 0} for _ in range(8)]
    shop.fit(tiny.seeded(Picture), data)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 3)

    def forward(self, word, labels=None):
        logits = self.words(word)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@mistake(
    """
    12 in column 'word' is out of range: layer 'words' of Words has 10 embeddings, 0 to 9
      why: it is in row 3 of the training set
      fix: map 'word' to 0..9, or enlarge the layer
    """,
    IndexError,
)
def a_word_beyond_the_embeddings(shop):
    shop.fit(tiny.seeded(Words), [{"word": i * 4, "labels": 0} for i in range(8)])


@mistake(
    """
    Net.forward does not take 'extra'
      why: the batch has x, labels, extra; forward takes x, labels
      fix: set remove_unused_columns=True, which drops 'extra'
    """,
    TypeError,
)
def a_column_that_forward_does_not_take(shop):
    shop.fit(net(), rows(extra=1), remove_unused_columns=False)


@mistake(
    """
    Net.forward needs 'x', which no column supplies
      why: the batch has labels; the data set also has features, which forward does not take
      fix: rename 'features' to 'x', or let a data_collator add 'x'
    """,
    TypeError,
)
def a_column_under_another_name(shop):
    shop.fit(net(), renamed(rows(), "x", "features"))


class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


@mistake(
    """
    Silent.forward does not take 'labels'
      why: the batch has labels, x; forward takes x: there is no loss
      fix: pass compute_loss_func=my_loss, or let forward take labels=None and return {'loss': ..., 'logits': ...}
    """,
    TypeError,
)
def a_model_without_labels_or_loss(shop):
    shop.fit(tiny.seeded(Silent), renamed(rows(), "labels", "label"))


@mistake(
    """
    Net has no weights: its parameters are on the meta device
      why: these parameters have shapes and no values: layer.weight, layer.bias
      fix: create it outside of torch.device('meta'), or call model.to_empty(device='cpu') and load_state_dict
    """,
    NotImplementedError,
)
def a_model_on_the_meta_device(shop):
    with torch.device("meta"):
        model = Net()
    shop.build(model, rows())


@mistake(
    """
    my own mistake
    ostinato: at step 1 of 4, rows 0, 1, 2, 3 of the training set: x (4, 4) float32, labels (4,) int64
    """,
    RuntimeError,
)
def an_exception_of_the_user(shop):
    def answer(logits, loss):
        raise RuntimeError("my own mistake")

    shop.fit(net(answer), rows())


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@mistake(
    """
    the shapes of column 'labels' and the predictions do not match
      why: cross_entropy compares logits (4, 5, 3) with labels (4, 5)
      fix: flatten both, logits.flatten(0, 1) and labels.flatten(), or move the classes: logits.transpose(1, 2)
    """,
    RuntimeError,
)
def classes_in_the_last_dimension(shop):
    shop.fit(tiny.seeded(Tagger), [{"x": [row["x"]] * 5, "labels": [0] * 5} for row in rows()])


@mistake(
    """
    the shapes of column 'labels' and the predictions do not match
      why: cross_entropy compares logits (4, 3) with labels (4, 1)
      fix: pass logits (rows, classes) and labels (rows,): check view, reshape and squeeze
    """,
    RuntimeError,
)
def labels_in_a_column_of_one(shop):
    shop.fit(net(), [{**row, "labels": [row["labels"]]} for row in rows()])


@mistake(
    """
    label 5 in column 'labels' is out of range: BertForSequenceClassification has 3 classes, 0 to 2
      why: it is in row 1 of the training set; the labels of this batch range from 0 to 5
      fix: use a model with 6 classes or more, or map the labels to 0..2
    """,
    IndexError,
    RuntimeError,
)
def a_smoothed_label_out_of_range(shop):
    shop.fit(tiny.bert(), with_value(tiny.classification_rows(8), "labels", 5, 1), label_smoothing_factor=0.1)


@mistake(
    """
    column 'x' is float32, and layer 'layer' of Net computes in bfloat16
      why: the batch is x (4, 4) float32, labels (4,) int64
      fix: load the model in float32, and set bf16=True to compute in half precision
    """,
    RuntimeError,
)
def a_model_in_half_precision(shop):
    shop.fit(net().bfloat16(), rows())


@mistake(
    """
    column 'x' is a list, and must be a tensor
      why: the data_collator returned x list, labels (4,) int64
      fix: convert it in the data_collator: torch.tensor(...); drop 'x' if it holds no numbers
    """,
    TypeError,
)
def a_collator_that_makes_lists(shop):
    def collate(found):
        return {"x": [row["x"] for row in found], "labels": torch.tensor([row["labels"] for row in found])}

    shop.fit(net(), rows(), data_collator=collate)


class Probabilities(Net):
    def forward(self, x, labels=None):
        logits = self.layer(x) - 3
        return {"loss": nn.functional.binary_cross_entropy(logits, labels), "logits": logits}


@mistake(
    """
    ...
    ostinato: at step 1 of 4, rows 0, 1, 2, 3 of the training set: x (4, 4) float32, labels (4, 3) float32
    ostinato: binary_cross_entropy takes probabilities; for logits, use binary_cross_entropy_with_logits
    """,
    RuntimeError,
)
def logits_for_probabilities(shop):
    shop.fit(net(kind=Probabilities), with_value(rows(), "labels", [1.0, 0.0, 1.0]))


class Normalised(Net):
    def __init__(self, answer=None):
        super().__init__(answer)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, labels=None):
        return super().forward(self.norm(x), labels)


@mistake(
    """
    ...
    ostinato: at step 3 of 4, row 8 of the training set: x (1, 4) float32, labels (1,) int64
    ostinato: batch normalization needs two rows: dataloader_drop_last=True drops a last batch of one row
    """,
    ValueError,
    steps=2,
)
def a_last_batch_of_one_row(shop):
    shop.fit(net(kind=Normalised), rows(9))


class Recurrent(Net):
    memory = 0.0

    def forward(self, x, labels=None):
        outputs = super().forward(x, labels)
        outputs["loss"] = outputs["loss"] + self.memory
        self.memory = outputs["loss"] * 0.1
        return outputs


@mistake(
    """
    ...
    ostinato: at step 2 of 4, rows 4, 5, 6, 7 of the training set: x (4, 4) float32, labels (4,) int64
    ostinato: the model keeps a tensor of the previous batch: call .detach() on it
    """,
    RuntimeError,
    steps=1,
)
def a_state_that_is_not_detached(shop):
    shop.fit(net(kind=Recurrent), rows())


# ----------------------------------------------------------------------------------------------- labels that are not


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: the batch has input_ids, attention_mask, and not 'labels'; column 'target' is dropped: forward does not take it
      fix: rename 'target' to 'labels'
    """,  # noqa: E501
    ValueError,
)
def labels_called_target(shop):
    shop.fit(tiny.bert(), renamed(tiny.classification_rows(8), "labels", "target"))


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: the batch has input_ids, attention_mask, and not 'labels'; column 'lables' is dropped: forward does not take it
      fix: rename 'lables' to 'labels'
    """,  # noqa: E501
    ValueError,
)
def labels_misspelt(shop):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(renamed(tiny.classification_rows(8), "labels", "lables"))
    shop.fit(tiny.bert(), data)


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: the batch has x, and not 'labels'
      fix: add 'labels' to every row
    """,
    ValueError,
)
def no_labels_at_all(shop):
    shop.fit(net(), without(rows(), "labels"))


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: the batch has input_ids, attention_mask, and not 'labels'
      fix: pass data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False), which creates the labels
    """,
    ValueError,
)
def no_labels_for_a_language_model(shop):
    shop.fit(tiny.gpt2(), without(tiny.language_rows(8), "labels"))


@mistake(
    """
    T5ForConditionalGeneration received no labels, from which it creates the decoder inputs
      why: the batch has input_ids, attention_mask, and not 'labels'
      fix: add labels to every row, the tokens of its target: tokenizer(text_target=...)['input_ids']
    """,
    ValueError,
)
def no_labels_for_a_translation(shop):
    shop.fit(tiny.t5(), without(tiny.translation_rows(8), "labels"))


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: start_logits,end_logits
      why: the batch has input_ids, attention_mask, and not 'start_positions', 'end_positions'
      fix: add 'start_positions', 'end_positions' to every row
    """,
    ValueError,
)
def no_spans_for_question_answering(shop):
    shop.fit(tiny.bert("QuestionAnswering", num_labels=2), tiny.classification_rows(8))


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: last_hidden_state,pooler_output
      why: BertModel has no head: it takes no labels and computes no loss
      fix: use a model with a head, such as BertForSequenceClassification, or pass compute_loss_func=
    """,
    ValueError,
)
def a_body_without_a_head(shop):
    from transformers import BertModel

    shop.fit(tiny.seeded(BertModel, tiny.bert().config), tiny.classification_rows(8))


@mistake(
    """
    compute_loss_func received labels=None: the batch has no labels
      why: the batch has x, and not 'labels'; column 'target' is dropped: forward does not take it
      fix: rename 'target' to 'labels'
    """,
    TypeError,
)
def no_labels_for_a_loss_function(shop):
    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs["logits"], labels)

    shop.fit(net(), renamed(rows(), "labels", "target"), compute_loss_func=loss)


@mistake(
    """
    compute_loss_func received labels=None: the batch has no labels
      why: column 'labels' is dropped: Silent.forward does not take it
      fix: set label_names=['labels'], which keeps it
    """,
    TypeError,
)
def labels_that_only_the_loss_function_takes(shop):
    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs, labels)

    shop.fit(tiny.seeded(Silent), rows(), compute_loss_func=loss)


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: it received x; column 'labels' is dropped: forward does not take it
      fix: let forward take labels=None and return {'loss': ..., 'logits': ...}
    """,
    ValueError,
)
def a_dict_without_a_loss_and_a_forward_without_labels(shop):
    class Named(Silent):
        def forward(self, x):
            return {"logits": self.layer(x)}

    shop.fit(tiny.seeded(Named), rows())


@mistake(
    """
    compute_metrics would never be called: the batches of the evaluation set have no labels
      why: they have x; no parameter of Silent.forward is named like labels; column 'labels' is dropped
      fix: set label_names=['labels']
    """,
    TypeError,
)
def labels_that_only_the_loss_function_takes_in_evaluation(shop):
    def loss(outputs, labels, num_items_in_batch=None):
        return outputs.sum()

    options = {"compute_loss_func": loss, "compute_metrics": accuracy}
    shop.build(tiny.seeded(Silent), eval_dataset=rows(), **options).evaluate()


# ---------------------------------------------------------------------------------------------------------- the loss


@mistake(
    """
    The model returned one tensor of shape (4, 3), which is not a loss
      why: a bare tensor is taken for logits; only a single number can be a loss
      fix: pass compute_loss_func=my_loss, or let forward return {'loss': ..., 'logits': ...}
    """,
    RuntimeError,
)
def a_bare_tensor(shop):
    shop.fit(net(lambda logits, loss: logits), rows())


@mistake(
    """
    The model returned nothing
      why: forward was given x, labels and returned None; is there a return at its end?
      fix: let forward return {'loss': ..., 'logits': ...}
    """,
    TypeError,
)
def no_return_in_forward(shop):
    shop.fit(net(lambda logits, loss: None), rows())


@mistake(
    """
    The model did not return a loss from the inputs, only the following keys: logits
      why: it received x, labels, and its output has no 'loss'
      fix: let forward return {'loss': ..., 'logits': ...}, or pass compute_loss_func=my_loss
    """,
    ValueError,
)
def a_dict_without_a_loss(shop):
    shop.fit(net(lambda logits, loss: {"logits": logits}), rows())


@mistake(
    """
    The model returned a SimpleNamespace, in which no loss can be found
      why: a loss is looked for under 'loss' in a dict, or in the first place of a tuple
      fix: let forward return {'loss': ..., 'logits': ...}
    """,
    TypeError,
)
def an_object_with_a_loss(shop):
    shop.fit(net(lambda logits, loss: SimpleNamespace(loss=loss)), rows())


@mistake(
    """
    the loss is a float, not a tensor
      why: Net.forward returned 1.171, a number that no longer knows how it was computed
      fix: return the tensor itself: leave out .item(), float() and .numpy()
    """,
    TypeError,
)
def a_loss_as_a_float(shop):
    shop.fit(net(lambda logits, loss: {"loss": loss.item(), "logits": logits}), rows())


@mistake(
    """
    the loss is 4 numbers, of shape (4,), and must be one
      why: Net.forward returned it: a loss per row, or logits in the first place of a tuple
      fix: take its mean: loss.mean(), or reduction='mean' in the loss function; a tuple starts with the loss
    """,
    RuntimeError,
)
def a_loss_per_row(shop):
    shop.fit(net(lambda logits, loss: {"loss": logits.sum(-1), "logits": logits}), rows())


@mistake(
    """
    the loss does not depend on any trainable parameter
      why: it was computed inside torch.no_grad(), from .detach() or .item(), or from argmax, which has no gradient
      fix: compute the loss from the logits, with gradients enabled
    """,
    RuntimeError,
)
def a_detached_loss(shop):
    shop.fit(net(lambda logits, loss: {"loss": loss.detach(), "logits": logits}), rows())


@mistake(
    """
    nothing to train: no parameter of Net is trainable
      why: all 2 have requires_grad=False
      fix: unfreeze the parameters to train: for parameter in model.<part>.parameters(): parameter.requires_grad_(True)
    """,
    RuntimeError,
)
def everything_frozen(shop):
    model = net().eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    shop.fit(model, rows())


@mistake(
    """
    the loss does not depend on any trainable parameter
      why: gradient checkpointing detaches the graph if the embeddings it starts from are frozen
      fix: call model.enable_input_require_grads(), or set gradient_checkpointing_kwargs={'use_reentrant': False}
    """,
    RuntimeError,
)
def frozen_embeddings_under_gradient_checkpointing(shop):
    class Checkpointed(Net):
        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
            self.answer = lambda logits, loss: {"loss": loss.detach(), "logits": logits}

    shop.fit(net(kind=Checkpointed), rows(), gradient_checkpointing=True)


@mistake(
    """
    the loss is a tuple of 2
      why: Own.compute_loss returned it, although return_outputs is False in training
      fix: end it with: return (loss, outputs) if return_outputs else loss
    """,
    TypeError,
)
def compute_loss_returns_a_tuple_always(shop):
    class Own(ostinato.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            return outputs["loss"], outputs

    shop.fit(net(), rows(), kind=Own)


@mistake(
    """
    the loss is None
      why: Own.compute_loss returned nothing; is there a return at its end?
      fix: return the loss, a tensor of one number
    """,
    TypeError,
)
def compute_loss_returns_nothing(shop):
    class Own(ostinato.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            model(**inputs)

    shop.fit(net(), rows(), kind=Own, gradient_accumulation_steps=2)


@mistake(
    """
    Own.compute_loss did not return the model's outputs in evaluation
      why: it was called with return_outputs=True and returned a Tensor
      fix: end it with: return (loss, outputs) if return_outputs else loss
    """,
    TypeError,
)
def compute_loss_never_returns_outputs(shop):
    class Own(ostinato.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs)["loss"]

    shop.build(net(), kind=Own, eval_dataset=rows()).evaluate()


@mistake(
    """
    the loss is None
      why: training_step returned nothing; is there a return at its end?
      fix: return the loss, a tensor of one number
    """,
    TypeError,
)
def training_step_returns_nothing(shop):
    class Own(ostinato.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            super().training_step(model, inputs, num_items_in_batch)

    shop.fit(net(), rows(), kind=Own)


@mistake(
    """
    compute_loss_func cannot be called: got an unexpected keyword argument 'num_items_in_batch'
      why: it is called with (outputs, labels, num_items_in_batch=...), and its signature is (outputs, labels)
      fix: define it as def loss(outputs, labels, num_items_in_batch=None): ...
    """,
    TypeError,
)
def a_loss_function_without_num_items(shop):
    shop.fit(net(), rows(), compute_loss_func=lambda outputs, labels: 0)


@mistake(
    """
    'dict' object has no attribute 'logits'
    ostinato: at step 1 of 4, rows 0, 1, 2, 3 of the training set: x (4, 4) float32, labels (4,) int64
    ostinato: the model returns a dict: use outputs['logits'] instead of outputs.logits
    """,
    AttributeError,
)
def outputs_of_ones_own_model_by_attribute(shop):
    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs.logits, labels)

    shop.fit(net(), rows(), compute_loss_func=loss)


@mistake(
    """
    step 1: loss nan, gradient norm nan: the data are not finite
      why: 'x' is nan in row 2 of the training set
      fix: fill or drop what is missing in the data, and check what is divided or taken the log of
    """,
    ValueError,
    ArithmeticError,
)
def missing_values_in_the_data(shop):
    shop.fit(net(), with_value(rows(), "x", [1.0, float("nan"), 0.0, 0.0], 2))


# -------------------------------------------------------------------------------------------------------- evaluation


@mistake(
    """
    label 9 in column 'labels' is out of range: Net has 3 classes, 0 to 2
      why: it is in row 5 of the evaluation set; the labels of this batch range from 0 to 9
      fix: set the outputs of the last layer to the number of classes, or map the labels to the classes it has
    """,
    IndexError,
)
def a_label_out_of_range_in_evaluation(shop):
    shop.build(net(), eval_dataset=with_value(rows(), "labels", 9, 5)).evaluate()


@mistake(
    """
    label 9 in column 'labels' is out of range: Net has 3 classes, 0 to 2
      why: it is in row 5 of the evaluation set 'bad'; the labels of this batch range from 0 to 9
      fix: set the outputs of the last layer to the number of classes, or map the labels to the classes it has
    """,
    IndexError,
)
def a_label_out_of_range_in_one_of_two_evaluation_sets(shop):
    sets = {"good": rows(), "bad": with_value(rows(), "labels", 9, 5)}
    shop.build(net(), eval_dataset=sets).evaluate()


@mistake(
    """
    my own mistake
    ostinato: in batch 1, rows 0, 1, 2, 3 of the prediction set: x (4, 4) float32, labels (4,) int64
    """,
    RuntimeError,
)
def an_exception_of_the_user_in_prediction(shop):
    def answer(logits, loss):
        raise RuntimeError("my own mistake")

    shop.build(net(answer)).predict(rows())


class Ragged(Net):
    def forward(self, x, labels=None):
        return {"loss": self.layer(x).sum(), "logits": torch.ones(len(x), 2, len(x))}


@mistake(
    """
    the predictions of different batches cannot be put together
      why: their shapes are (4, 2, 4), (3, 2, 3); only rows and the second dimension may differ
      fix: preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or eval_do_concat_batches=False
    """,
    RuntimeError,
)
def predictions_of_different_shapes(shop):
    shop.build(net(kind=Ragged)).predict(rows(7))


@mistake(
    """
    compute_metrics would never be called: the batches of the evaluation set have no labels
      why: they have x, target; no parameter of Own.forward is named like labels
      fix: set label_names=['target']
    """,
    TypeError,
)
def evaluating_without_labels_although_there_are_some(shop):
    class Own(Net):
        def forward(self, x, target=None):
            return super().forward(x, target)

    model, data = net(kind=Own), renamed(rows(), "labels", "target")
    shop.build(model, eval_dataset=data, compute_metrics=lambda prediction: {"rows": 1.0}).evaluate()


@mistake(
    """
    compute_metrics would never be called: the batches of the evaluation set have no labels
      why: they have x, labels; the labels are expected in 'lable'
      fix: set label_names=['labels']
    """,
    TypeError,
)
def label_names_that_name_nothing(shop):
    options = {"label_names": ["lable"], "compute_metrics": lambda prediction: {"rows": 1.0}}
    shop.build(net(), eval_dataset=rows(), **options).evaluate()


# ----------------------------------------------------------------------------------------------------------- metrics


@mistake(
    """
    compute_metrics cannot be called: takes 0 positional arguments but 1 was given
      why: it is called with one EvalPrediction (predictions, label_ids), and its signature is ()
      fix: define it as def compute_metrics(prediction): logits, labels = prediction; return {"accuracy": ...}
    """,
    TypeError,
)
def a_metric_without_arguments(shop):
    def compute_metrics():
        return {}

    shop.measured(compute_metrics)


@mistake(
    """
    compute_metrics cannot be called: missing 1 required positional argument: 'labels'
      why: it is called with one EvalPrediction (predictions, label_ids), and its signature is (predictions, labels)
      fix: define it as def compute_metrics(prediction): logits, labels = prediction; return {"accuracy": ...}
    """,
    TypeError,
)
def a_metric_of_two_arguments(shop):
    def compute_metrics(predictions, labels):
        return {}

    shop.measured(compute_metrics)


@mistake(
    """
    compute_metrics returned a float, and must return a dict
      why: each number needs a name, under which it is logged and compared
      fix: return {"accuracy": 0.5}
    """,
    TypeError,
)
def a_metric_that_returns_a_number(shop):
    shop.measured(lambda prediction: 0.5)


@mistake(
    """
    compute_metrics returned None, and must return a dict
      why: each number needs a name, under which it is logged and compared
      fix: return a dict: is there a return at its end?
    """,
    TypeError,
)
def a_metric_that_returns_nothing(shop):
    shop.measured(lambda prediction: None)


@mistake(
    """
    compute_metrics returned a tuple, and must return a dict
      why: each number needs a name, under which it is logged and compared
      fix: return {"accuracy": value}
    """,
    TypeError,
)
def a_metric_that_returns_a_pair(shop):
    shop.measured(lambda prediction: ("accuracy", 0.5))


@mistake(
    """
    compute_metrics named a number 0, and names must be strings
      why: it returned a dict with 0, 1
      fix: turn the names into strings: {str(name): value}
    """,
    TypeError,
)
def a_metric_with_numbers_for_names(shop):
    shop.measured(lambda prediction: {0: 0.5, 1: 0.25})


@mistake(
    """
    'tuple' object has no attribute 'argmax'
    ostinato: compute_metrics (accuracy) received predictions a tuple of (4, 3) float32, (4, 3) float32, label_ids (4,) int64
    ostinato: predictions is a tuple of all outputs besides the loss; predictions[0] is the first
    """,  # noqa: E501
    AttributeError,
)
def a_metric_that_does_not_expect_a_tuple(shop):
    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    shop.measured(accuracy, net(lambda logits, loss: {"loss": loss, "logits": logits, "hidden": 2 * logits}))


@mistake(
    """
    division by zero
    ostinato: compute_metrics (ratio) received predictions (6, 3) float32, label_ids (6,) int64
    """,
    ZeroDivisionError,
)
def a_metric_that_fails_on_all_rows_too(shop):
    def ratio(prediction):
        return {"ratio": 1 / 0}

    shop.measured(ratio)


@mistake(
    """
    preprocess_logits_for_metrics returned None
      why: what it returns is what compute_metrics gets as predictions
      fix: return the logits, or what you make of them: is there a return at its end?
    """,
    TypeError,
)
def no_return_in_preprocess_logits(shop):
    shop.measured(lambda prediction: {}, preprocess_logits_for_metrics=lambda logits, labels: None)


@mistake(
    """
    preprocess_logits_for_metrics cannot be called: takes 1 positional argument but 2 were given
      why: it is called with (logits, labels) of each batch, and its signature is (logits)
      fix: define it as def preprocess_logits_for_metrics(logits, labels): return logits.argmax(-1)
    """,
    TypeError,
)
def preprocess_logits_of_one_argument(shop):
    def first(logits):
        return logits

    shop.measured(lambda prediction: {}, preprocess_logits_for_metrics=first)


@mistake(
    """
    compute_metrics would never be called: the batches of the evaluation set have no labels
      why: they have x; the labels are expected in 'labels'; column 'target' is dropped
      fix: rename 'target' to 'labels'
    """,
    TypeError,
)
def evaluation_labels_called_target(shop):
    shop.measured(lambda prediction: {}, eval_dataset=renamed(rows(), "labels", "target"))


@mistake(
    """
    metric_for_best_model='acuracy' is not among the evaluation's metrics
      why: the evaluation returned ['eval_accuracy', 'eval_loss']
      fix: did you mean 'accuracy'?
    """,
    KeyError,
)
def a_misspelt_metric(shop):
    best = {"metric_for_best_model": "acuracy", "greater_is_better": True}
    shop.measured(lambda prediction: {"accuracy": 1.0}, **best)


@mistake(
    """
    metric_for_best_model='bleu' is not among the evaluation's metrics
      why: the evaluation returned ['eval_accuracy', 'eval_loss']
      fix: name one of these (the prefix eval_ may be left out)
    """,
    KeyError,
)
def a_metric_that_nobody_computes(shop):
    best = {"metric_for_best_model": "bleu", "save_strategy": "best"}
    shop.measured(lambda prediction: {"accuracy": 1.0}, **best)


@mistake(
    """
    metric_for_best_model='f1' is not among the evaluation's metrics
      why: the evaluation returned ['eval_mail_f1', 'eval_mail_loss', 'eval_news_f1', 'eval_news_loss']
      fix: did you mean 'news_f1' or 'mail_f1'?
    """,
    KeyError,
)
def a_metric_without_the_name_of_its_set(shop):
    sets = {"news": rows(4), "mail": rows(5)}
    shop.measured(lambda prediction: {"f1": 1.0}, eval_dataset=sets, metric_for_best_model="f1")


@mistake(
    """
    metric_for_best_model='f1' is a list, and must be a number
      why: compute_metrics returned [0.5, 0.25], which cannot be compared
      fix: return a float under this name, or name another metric
    """,
    TypeError,
)
def a_best_metric_that_is_no_number(shop):
    shop.measured(lambda prediction: {"f1": [0.5, 0.25]}, metric_for_best_model="f1")


@mistake(
    """
    EarlyStoppingCallback requires metric_for_best_model to be defined
      why: without it nothing says which number should stop improving
      fix: set metric_for_best_model="loss" (or the name of a metric that compute_metrics returns)
    """,
    AssertionError,
)
def early_stopping_without_a_metric(shop):
    stop = [ostinato.EarlyStoppingCallback()]
    shop.fit(net(), rows(), callbacks=stop, eval_dataset=rows(), eval_strategy="epoch")


@mistake(
    """
    EarlyStoppingCallback requires IntervalStrategy of steps or epoch
      why: eval_strategy='no' never evaluates, so there is nothing to watch
      fix: set eval_strategy="epoch" or eval_strategy="steps"
    """,
    AssertionError,
)
def early_stopping_without_evaluation(shop):
    stop = [ostinato.EarlyStoppingCallback()]
    shop.fit(net(), rows(), callbacks=stop, eval_dataset=rows(), metric_for_best_model="loss")


@mistake(
    """
    compute_metrics cannot be called: got an unexpected keyword argument 'compute_result'
      why: it is called with one EvalPrediction and compute_result=True or False (batch_eval_metrics=True), and its signature is (prediction)
      fix: define it as def compute_metrics(prediction, compute_result): ..., or set batch_eval_metrics=False
    """,  # noqa: E501
    TypeError,
)
def a_metric_that_does_not_expect_batches(shop):
    options = {"batch_eval_metrics": True, "compute_metrics": lambda prediction: {}}
    shop.build(net(), eval_dataset=rows(), **options).evaluate()


@mistake(
    """
    metric_for_best_model='loss' is not among the evaluation's metrics
      why: an evaluation computes a loss from labels, and its batches have none, or the model returns none
      fix: add labels to the evaluation set, or name another metric
    """,
    KeyError,
)
def the_best_by_a_loss_that_nobody_computes(shop):
    best = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"}
    shop.fit(net(), rows(), eval_dataset=without(rows(), "labels"), **best)


# --------------------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, workshop: Workshop) -> None:
    expected = MISTAKES[name]
    with pytest.raises(Exception) as caught:
        expected.do(workshop)
    error = caught.value
    if expected.text.startswith("..."):  # torch's words are its own
        assert render_error(error).partition("\n")[2] == expected.text.partition("\n")[2]
    else:
        assert render_error(error) == expected.text
    assert isinstance(error, expected.kinds), type(error).__mro__
    assert len(our_frames(error)) <= LIMIT, our_frames(error)
    if workshop.trainer is not None:
        assert workshop.trainer.state.global_step == expected.steps
        if expected.steps == 0:
            after = workshop.trainer.model.state_dict()
            assert all(torch.equal(value, after[key]) for key, value in workshop.before.items())


def test_there_are_many() -> None:
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("name", ["features_of_another_width", "logits_flattened_too_far"])
def test_the_line_of_ones_own_model_is_shown(name: str, workshop: Workshop) -> None:
    with pytest.raises(ValueError) as caught:
        MISTAKES[name].do(workshop)
    cause = caught.value.__cause__
    assert isinstance(cause, (RuntimeError, ValueError))
    assert len(our_frames(cause)) <= LIMIT
    assert any(frame.filename == __file__ for frame in traceback.extract_tb(cause.__traceback__))


def test_torch_is_not_quoted_where_the_data_are_to_blame(workshop: Workshop) -> None:
    with pytest.raises(IndexError) as caught:
        MISTAKES["a_label_beyond_the_last_layer"].do(workshop)
    assert "Target 7" not in "".join(traceback.format_exception(caught.value))


def test_an_exception_of_the_user_stays_the_same_object(workshop: Workshop) -> None:
    own = LookupError("my own mistake")

    def answer(logits, loss):
        raise own

    with pytest.raises(LookupError) as caught:
        workshop.fit(net(answer), rows())
    assert caught.value is own
    assert traceback.extract_tb(own.__traceback__)[-1].name == "answer"


def failing_at(step: int, error: Exception) -> Net:
    calls = []

    def answer(logits, loss):
        calls.append(1)
        if len(calls) == step:
            raise error
        return {"loss": loss, "logits": logits}

    return net(answer)


def test_what_is_safe_is_said(workshop: Workshop) -> None:
    model = failing_at(4, RuntimeError("the cat pulled the plug"))
    with pytest.raises(RuntimeError) as caught:
        workshop.fit(model, rows(), max_steps=8, save_strategy="steps", save_steps=2)
    assert render_error(caught.value).splitlines() == [
        "the cat pulled the plug",
        "ostinato: at step 4 of 8, rows 4, 5, 6, 7 of the training set: x (4, 4) float32, labels (4,) int64",
        "ostinato: checkpoint-2 is complete: train(resume_from_checkpoint=True) resumes from it",
    ]


def test_what_another_run_left_is_not_said_to_be_safe(workshop: Workshop) -> None:
    workshop.fit(net(), rows(), max_steps=2, save_strategy="steps", save_steps=2)
    for file in [*workshop.directory.rglob("*"), *workshop.directory.glob("checkpoint-2")]:
        os.utime(file, (1, 1))
    with pytest.raises(RuntimeError) as caught:
        workshop.fit(failing_at(1, RuntimeError("no")), rows())
    assert "checkpoint" not in render_error(caught.value)


def test_a_mistake_after_hours_names_the_checkpoint_too(workshop: Workshop) -> None:
    data = with_value(rows(12), "labels", 5, 9)
    with pytest.raises(IndexError) as caught:
        workshop.fit(net(), data, save_strategy="steps", save_steps=1)
    assert render_error(caught.value).splitlines()[-1] == (
        "ostinato: checkpoint-2 is complete: train(resume_from_checkpoint=True) resumes from it"
    )


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {},
            "per_device_train_batch_size=2 with gradient_accumulation_steps=2 computes the same updates with half the "
            "rows in memory; gradient_checkpointing=True and bf16=True save more",
        ),
        (
            {"gradient_accumulation_steps": 4, "bf16": True},
            "per_device_train_batch_size=2 with gradient_accumulation_steps=8 computes the same updates with half the "
            "rows in memory; gradient_checkpointing=True saves more",
        ),
        (
            {"per_device_train_batch_size": 1},
            "the batch has only one row; gradient_checkpointing=True and bf16=True save more",
        ),
    ],
)
def test_out_of_memory(settings: dict, advice: str, workshop: Workshop) -> None:
    model = failing_at(1, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        workshop.fit(model, rows(), **settings)
    assert render_error(caught.value).splitlines()[-1] == f"ostinato: out of memory: {advice}"


def test_a_second_mistake_in_a_running_evaluation(workshop: Workshop) -> None:
    """What only happens later still carries its notes, and the checkpoint that was due."""
    calls = []

    def metric(prediction):
        calls.append(len(prediction.label_ids))
        return {"ratio": 1 / (2 - len(calls))}

    with pytest.raises(ZeroDivisionError) as caught:
        workshop.measured(metric, save_strategy="steps", save_steps=1)
    assert calls == [6, 6], "the rehearsal is not remembered"
    assert render_error(caught.value).splitlines()[1:] == [
        "ostinato: compute_metrics (metric) received predictions (6, 3) float32, label_ids (6,) int64",
        "ostinato: checkpoint-2 is complete: train(resume_from_checkpoint=True) resumes from it",
    ]
    assert len(our_frames(caught.value)) <= LIMIT


# -------------------------------------------------------------------------------------------------- nothing to say


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def needs_all_classes(prediction) -> dict[str, float]:
    """Like the area under a ROC curve: undefined for one class."""
    if len(set(prediction.label_ids.tolist())) < 3:
        warnings.warn("only one class present")
        raise ValueError("Only one class is present in y_true. ROC AUC score is not defined in that case.")
    return {"auc": 0.5}


def by_class(prediction) -> dict[str, float]:
    """Names depend on which classes there are."""
    return {f"recall_{label}": 0.5 for label in sorted(set(prediction.label_ids.tolist()))}


def of_the_third_class(prediction) -> dict[str, float]:
    counts = np.bincount(prediction.label_ids)
    return {"third": float(counts[2])}


def generated(prediction) -> dict[str, float]:
    return {"length": float(prediction.predictions[0].shape[1])}


def sorted_rows() -> list[dict[str, Any]]:
    return sorted(rows(12), key=lambda row: row["labels"])


class Patient(Net):
    """Takes missing values for zeros."""

    def forward(self, x, labels=None):
        return super().forward(x.nan_to_num(), labels)


BEST = {"load_best_model_at_end": True, "greater_is_better": True}

CORRECT = {
    "BERT": lambda: (
        tiny.bert(),
        tiny.classification_rows(8),
        accuracy,
        {**BEST, "metric_for_best_model": "accuracy"},
    ),
    "regression by BERT": lambda: (tiny.bert(num_labels=1), tiny.classification_rows(8), None, {}),
    "several labels": lambda: (
        tiny.bert(problem_type="multi_label_classification"),
        with_value(tiny.classification_rows(8), "labels", [1.0, 0.0, 1.0]),
        None,
        {},
    ),
    "several labels, found out": lambda: (
        tiny.bert(),
        with_value(tiny.classification_rows(8), "labels", [1.0, 0.0, 1.0]),
        None,
        {},
    ),
    "labels to be ignored": lambda: (
        tiny.bert(),
        with_value(tiny.classification_rows(8), "labels", -100, 1),
        accuracy,
        {},
    ),
    "tags": lambda: (
        tiny.bert("TokenClassification"),
        with_value(tiny.classification_rows(8), "labels", [-100, 0, 1, 2, 2, 1, 0, -100]),
        accuracy,
        {},
    ),
    "question answering": lambda: (
        tiny.bert("QuestionAnswering", num_labels=2),
        [{**row, "start_positions": 2, "end_positions": 5} for row in without(tiny.classification_rows(8), "labels")],
        None,
        {},
    ),
    "GPT-2": lambda: (tiny.gpt2(loss_type=None), tiny.language_rows(8), None, {"load_best_model_at_end": True}),
    "Llama": lambda: (tiny.llama(), tiny.language_rows(8), None, {"lr_scheduler_type": "reduce_lr_on_plateau"}),
    "T5": lambda: (tiny.t5(), tiny.translation_rows(8), generated, {"metric_for_best_model": "loss"}),
    "plain module": lambda: (net(), rows(), accuracy, {**BEST, "metric_for_best_model": "accuracy"}),
    "plain tuple": lambda: (net(lambda logits, loss: (loss, logits)), rows(), accuracy, {}),
    "missing values that the model fills": lambda: (
        net(kind=Patient),
        with_value(rows(), "x", [1.0, math.nan, 0.0, 0.0], 2),
        accuracy,
        {},
    ),
    "two evaluation sets": lambda: (
        net(),
        {"news": rows(), "mail": rows(5)},
        accuracy,
        {**BEST, "metric_for_best_model": "eval_mail_accuracy"},
    ),
    "a metric that needs all rows": lambda: (
        net(),
        sorted_rows(),
        needs_all_classes,
        {**BEST, "metric_for_best_model": "auc"},
    ),
    "a metric that is named by all rows": lambda: (
        net(),
        sorted_rows(),
        by_class,
        {**BEST, "metric_for_best_model": "recall_2"},
    ),
    "a metric that indexes all classes": lambda: (net(), sorted_rows(), of_the_third_class, {}),
    "the runtime decides": lambda: (net(), rows(), accuracy, {**BEST, "metric_for_best_model": "runtime"}),
    "a loss function": lambda: (
        tiny.seeded(Silent),
        rows(),
        accuracy,
        {"compute_loss_func": cross_entropy, "label_names": ["labels"]},
    ),
}


def cross_entropy(outputs, labels, num_items_in_batch=None):
    return nn.functional.cross_entropy(outputs, labels, reduction="sum") / (num_items_in_batch or len(labels))


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_is_said_of_what_is_right(
    name: str, workshop: Workshop, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    model, data, metric, options = CORRECT[name]()
    train = data["news"] if isinstance(data, dict) else data
    trainer = workshop.build(
        model,
        train,
        eval_dataset=data,
        compute_metrics=metric,
        **{"eval_strategy": "steps", "eval_steps": 2, **options},
    )
    capfd.readouterr()
    forget_notices()
    trainer.train()
    said_out_loud = [line for line in capfd.readouterr().err.splitlines() if "loaded the best model" not in line]
    assert said_out_loud == []
    assert [str(warning.message) for warning in recwarn if "one class" not in str(warning.message)] == []
    assert trainer.state.global_step == 4


def test_predicting_without_labels_is_right(workshop: Workshop, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = workshop.build(net(), compute_metrics=accuracy)
    forget_notices()
    output = trainer.predict(without(rows(), "labels"))
    assert output.predictions.shape == (8, 3)
    assert capfd.readouterr().err == ""


def test_evaluating_without_labels_is_said_once(workshop: Workshop, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = workshop.build(net(), compute_metrics=accuracy, eval_dataset=without(rows(), "labels"))
    forget_notices()
    trainer.evaluate()
    trainer.evaluate()
    assert capfd.readouterr().err == "ostinato: compute_metrics is not called: the evaluation set has no labels\n"
