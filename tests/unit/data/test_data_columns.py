"""Which columns reach the model: the same as under transformers, and said in words."""

from __future__ import annotations

import logging
from collections import UserDict
from typing import Any

import pytest
import torch

from ostinato.core.errors import DataError
from ostinato.data.columns import (
    RemoveColumnsCollator,
    can_return_loss,
    find_default_labels,
    find_labels,
    find_removed_columns,
    find_signature_columns,
    guess_renames,
    remove_unused_columns,
    unwrap_model,
)


class Plain(torch.nn.Module):
    def forward(self, x, labels=None, my_label=None, start_positions=None, end_positions=None, **options): ...


class ForQuestionAnswering(Plain): ...


class Catching(torch.nn.Module):
    def forward(self, *args, **kwargs): ...


class Contrastive(torch.nn.Module):
    def forward(self, x, return_loss=True): ...


class NotContrastive(torch.nn.Module):
    def forward(self, x, return_loss=None): ...


class AlmostContrastive(torch.nn.Module):
    def forward(self, x, return_loss=1): ...


class Adapter(torch.nn.Module):
    """A model that stands around another, as PEFT's do."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def get_base_model(self) -> torch.nn.Module:
        return self.inner

    def forward(self, *args, **kwargs): ...


MODELS = [Plain, ForQuestionAnswering, Catching, Contrastive, NotContrastive, AlmostContrastive]


@pytest.mark.parametrize("model_class", MODELS)
def test_labels_and_loss_as_transformers_finds_them(model_class: type) -> None:
    pytest.importorskip("transformers")
    from transformers import utils

    assert find_labels(model_class) == utils.find_labels(model_class)
    assert can_return_loss(model_class) == utils.can_return_loss(model_class)


@pytest.mark.parametrize(
    "name",
    ["BertForPreTraining", "BertForQuestionAnswering", "BertForSequenceClassification", "CLIPModel", "BertModel"],
)
def test_labels_of_models_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers import utils

    model_class = getattr(transformers, name)
    assert find_labels(model_class) == utils.find_labels(model_class)
    assert can_return_loss(model_class) == utils.can_return_loss(model_class)


@pytest.mark.parametrize("label_names", [None, ["labels", "target"]])
@pytest.mark.parametrize("model_class", MODELS)
def test_signature_columns_as_transformers_has_them(model_class: type, label_names: Any, tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    model = model_class()
    args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", label_names=label_names)
    trainer = transformers.Trainer(model, args)
    trainer._set_signature_columns_if_needed()
    catch_all = {"args", "kwargs", "options"}  # names of no column
    names = find_default_labels(model) if label_names is None else label_names
    assert names == trainer.label_names
    columns = find_signature_columns(model, names)
    assert set(columns) == set(trainer._signature_columns) - catch_all
    assert len(columns) == len(set(columns))


def test_a_forward_set_on_the_instance_decides() -> None:
    model = Plain()
    model.forward = lambda z, q=None: None  # type: ignore[method-assign]
    assert find_signature_columns(model, [])[:2] == ["z", "q"]


def compiled(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [Adapter, compiled, lambda model: compiled(Adapter(model))])
def test_wrappers_are_looked_through(wrap: Any) -> None:
    model = Plain()
    assert unwrap_model(wrap(model)) is model
    assert find_signature_columns(wrap(model), []) == find_signature_columns(model, [])
    assert find_default_labels(wrap(model)) == ["labels", "my_label"]


def test_peft_is_looked_through() -> None:
    peft = pytest.importorskip("peft")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["0"]))
    assert find_signature_columns(wrapped, []) == ["input", "label", "label_ids"]


# ------------------------------------------------------------------------------------------------------- data sets


class Table:
    """The part of a `datasets.Dataset` that matters here."""

    def __init__(self, *names: str) -> None:
        self.column_names = list(names)

    def remove_columns(self, names: list[str]) -> Table:
        return Table(*(name for name in self.column_names if name not in names))


COLUMNS = ["x", "labels", "my_label", "label", "label_ids"]


def test_columns_are_removed_and_the_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        left = remove_unused_columns(Table("x", "text", "label", "id"), COLUMNS, "training", model_name="Plain")
    assert left.column_names == ["x", "label"]
    said = capsys.readouterr().err.strip().splitlines()
    assert said == [
        "ostinato: columns of the training set: kept x, label; left out text, id, which Plain.forward does not take "
        "(remove_unused_columns=False keeps them)"
    ]


def test_a_table_with_nothing_to_remove_is_returned_itself(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("x", "label")
    assert remove_unused_columns(table, COLUMNS, "training") is table
    assert capsys.readouterr().err == ""


def test_rows_without_a_table_are_returned_as_they_are() -> None:
    rows = [{"x": 1, "text": "..."}]
    assert remove_unused_columns(rows, COLUMNS, "training") is rows


def test_nothing_left_shows_both_sides_and_the_nearest_names() -> None:
    with pytest.raises(DataError) as caught:
        remove_unused_columns(Table("my_labels", "zzz"), COLUMNS, "training", model_name="Plain")
    text = str(caught.value)
    assert "the training set" in text and "my_labels, zzz" in text and "x, labels, my_label" in text
    assert 'rename_columns({"my_labels": "my_label"})' in text and '"zzz"' not in text
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        remove_unused_columns(Table("zzz"), COLUMNS)


TOKENS = ["input_ids", "attention_mask", "labels", "label", "label_ids"]


@pytest.mark.parametrize("kept", [[], ["label"], ["labels"]])
def test_labels_alone_are_of_no_use_to_a_model_of_tokens(kept: list[str]) -> None:
    with pytest.raises(DataError, match="reaches BERT") as caught:
        remove_unused_columns(Table(*kept, "tokens", "mask"), TOKENS, "Training", model_name="BERT")
    assert '{"tokens": "input_ids", "mask": "attention_mask"}' in caught.value.fix
    with pytest.raises(DataError, match="of the training set reaches BERT") as caught:
        row = dict.fromkeys([*kept, "tokens"], 1)
        RemoveColumnsCollator(list, TOKENS, description="Training", model_name="BERT")([row])
    assert caught.value.fix == "rename 'tokens' to 'input_ids'"


def test_labels_alone_may_be_all_that_another_model_takes() -> None:
    assert remove_unused_columns(Table("labels", "text"), COLUMNS, "Training").column_names == ["labels"]
    assert RemoveColumnsCollator(list, COLUMNS)([{"labels": 1, "text": "a"}]) == [{"labels": 1}]


def test_raw_text_is_told_from_other_columns() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"id": [1], "sentence": ["a"], "label": [1]})
    with pytest.raises(DataError, match="looks like raw text") as caught:
        remove_unused_columns(table, TOKENS, "Evaluation")
    assert 'dataset.map(lambda row: tokenizer(row["sentence"], truncation=True), batched=True)' in caught.value.fix
    with pytest.raises(DataError, match="looks like raw text") as caught:
        RemoveColumnsCollator(list, TOKENS)([{"id": 1, "sentence": "a", "label": 1}])
    assert '**tokenizer(row["sentence"], truncation=True)' in caught.value.fix


def test_a_transform_may_make_the_columns_of_others() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"text": ["a"], "label": [1]})
    table.set_transform(lambda rows: {"input_ids": [[1]] * len(rows["label"]), "label": rows["label"]})
    left = remove_unused_columns(table, TOKENS)
    assert (
        left.column_names == ["label"]
        and find_removed_columns(left) == ("text",)
        and find_removed_columns(table) == ()
    )
    with pytest.raises(DataError, match="transform"):
        remove_unused_columns(table.remove_columns("label"), TOKENS)


def test_names_that_are_no_text() -> None:
    with pytest.raises(DataError, match="the data set has 0, 1"):
        RemoveColumnsCollator(list, COLUMNS)([{0: 1, 1: 2}])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["tokens"], {"tokens": "input_ids"}),
        (["Target", "ids"], {"Target": "labels", "ids": "input_ids"}),
        (["tokens", "token_ids"], {"tokens": "input_ids"}),  # once
        (["input_idss"], {"input_idss": "input_ids"}),
        (["sentence", "zzz", 3], {}),
    ],
)
def test_what_was_meant(names: list[Any], found: dict[str, str]) -> None:
    assert guess_renames(names, TOKENS) == found


@pytest.mark.parametrize(
    "formatted",
    [
        lambda table: table,
        lambda table: table.with_format("torch"),
        lambda table: table.with_format("torch", columns=["x", "text"]),
        lambda table: table.with_format("numpy", columns=["x"], output_all_columns=True),
    ],
)
def test_real_data_sets_as_transformers_leaves_them(formatted: Any, tmp_path: Any) -> None:
    transformers, datasets = pytest.importorskip("transformers"), pytest.importorskip("datasets")
    table = formatted(datasets.Dataset.from_dict({"x": [1, 2], "text": ["a", "b"], "label": [0, 1], "n": [1, 2]}))
    model = Plain()
    args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    expected = transformers.Trainer(model, args)._remove_unused_columns(table, "training")
    left = remove_unused_columns(table, find_signature_columns(model, ["labels"]), "training")
    assert left.column_names == expected.column_names
    assert left.format == expected.format
    assert str(left[:]) == str(expected[:])


def test_streamed_data_sets_lose_columns_too() -> None:
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": [1, 2], "text": ["a", "b"]}).to_iterable_dataset()
    assert list(remove_unused_columns(stream, COLUMNS)) == [{"x": 1}, {"x": 2}]


# -------------------------------------------------------------------------------------------------------- collator

ROWS = [{"x": 1, "y": 2}, {"x": 2, "z": 4}, {"x": 3}, (1, 2)]


def test_rows_are_filtered_as_by_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.trainer_utils import RemoveColumnsCollator as Theirs

    assert RemoveColumnsCollator(list, COLUMNS)(ROWS) == Theirs(list, COLUMNS)(ROWS)


def test_any_mapping_is_filtered() -> None:
    assert RemoveColumnsCollator(list, COLUMNS)([UserDict(x=1, y=2)]) == [{"x": 1}]


def test_the_rows_of_the_user_stay_whole() -> None:
    row = {"x": 1, "y": 2}
    RemoveColumnsCollator(list, COLUMNS)([row])
    assert row == {"x": 1, "y": 2}


def test_what_is_filtered_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    collator = RemoveColumnsCollator(list, COLUMNS, description="training", model_name="Plain")
    for _ in range(3):
        collator([{"x": 1, "y": 2}])
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "kept x; left out y, which Plain.forward does not take" in said[0]


def test_a_logger_of_the_user_is_used(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("test_columns")
    with caplog.at_level(logging.INFO, logger="test_columns"):
        RemoveColumnsCollator(list, COLUMNS, logger, "Plain", "training")([{"x": 1, "y": 2}])
    assert "left out y" in caplog.text
    assert capsys.readouterr().err == ""


def test_rows_of_which_nothing_is_left_are_an_error() -> None:
    with pytest.raises(DataError, match="no column"):
        RemoveColumnsCollator(list, COLUMNS)([{"y": 2}])
