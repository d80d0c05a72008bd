"""Rows that cannot be read or joined: whose error it is, which row it names, and what is left alone."""

from __future__ import annotations

import multiprocessing
import pickle
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

from ostinato.arguments.settings import LoaderSettings
from ostinato.core import accelerator
from ostinato.core.errors import DataError
from ostinato.data.collate_errors import find_absent_columns
from ostinato.data.collators.choice_rows import DataCollatorForMultipleChoice
from ostinato.data.collators.default import default_data_collator
from ostinato.data.collators.padding import DataCollatorWithPadding
from ostinato.data.collators.token_labels import DataCollatorForTokenClassification
from ostinato.data.columns import RemoveColumnsCollator
from ostinato.data.dataset_errors import (
    CollatorError,
    MissingColumnError,
    NotADataSetError,
    NotARowError,
    RaggedError,
    RowNames,
    RowsError,
    WrongValueError,
    check_data_set,
    find_batch_fault,
    find_missing_inputs,
)
from ostinato.data.loader import Loader, build_loader
from ostinato.data.worker_errors import WorkerTraceback
from tests.support import tiny

Settings = Callable[..., LoaderSettings]
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Strange(Exception):
    """Cannot be made again from its text."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"code {code}")
        self.code, self.where = code, where

    def __reduce__(self) -> Any:
        return Strange, (self.code,)  # where is missing: it cannot travel


class Broken(Dataset[Any]):
    """Its row 3 cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 3:
            raise self.error
        return {"x": index}


class BrokenStream(IterableDataset[Any]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(6):
            if number == 3:
                raise self.error
            yield {"x": number}


def refuse(error: Exception, rows: list[Any]) -> Any:
    raise error


def loader_of(dataset: Any, settings: LoaderSettings, **options: Any) -> Loader:
    given = {"batch_size": 2, "sampler": None, "collate_fn": default_data_collator, "training": True, **options}
    return build_loader(dataset, **given, settings=settings)


def failure(loader: Any) -> Any:
    with pytest.raises(Exception) as caught:
        list(loader)
    return caught.value


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


# ------------------------------------------------------------------------------------------------ the user's own error


@pytest.mark.parametrize("kind", [Broken, BrokenStream])
@pytest.mark.parametrize("make", [KeyError, IndexError, OSError, partial(Strange, 7, where="here")])
def test_the_same_error_is_raised(loader_settings: Settings, kind: Any, make: Any) -> None:
    error = make()
    raised = failure(loader_of(kind(error), loader_settings()))
    assert raised is error and raised.__cause__ is None
    assert len(notes(raised)) == 1 and "of the training set" in notes(raised)[0]


@pytest.mark.parametrize(
    ("description", "training", "name"),
    [
        (None, True, "training set"),
        (None, False, "evaluation set"),
        ("Training", True, "training set"),
        ("Evaluation", False, "evaluation set"),
        ("test", False, "prediction set"),
    ],
)
def test_the_data_set_is_named(loader_settings: Settings, description: Any, training: bool, name: str) -> None:
    options = {"training": training, "description": description}
    raised = failure(loader_of(Broken(KeyError()), loader_settings(), **options))
    assert notes(raised) == [f"ostinato: while row 3 of the {name} (6 rows) was read"]


def test_the_row_is_named_by_its_number_not_by_its_place(loader_settings: Settings) -> None:
    raised = failure(loader_of(Broken(KeyError()), loader_settings(), batch_size=4, sampler=[5, 3, 1]))
    assert notes(raised) == ["ostinato: while row 3 of the training set (6 rows) was read"]
    indices = SubsetRandomSampler(torch.tensor([3, 3]))  # type: ignore[arg-type]
    raised = failure(loader_of(Broken(KeyError()), loader_settings(), sampler=indices))
    assert "row 3 of" in notes(raised)[0]


@forks
def test_an_error_of_a_worker_is_what_it_was(loader_settings: Settings) -> None:
    error = FileNotFoundError(2, "No such file", "cat.png")
    raised = failure(loader_of(Broken(error), loader_settings(num_workers=1)))
    assert type(raised) is FileNotFoundError and (raised.errno, raised.filename) == (2, "cat.png")
    assert notes(raised) == ["ostinato: while row 3 of the training set (6 rows) was read by worker 0"]
    assert isinstance(raised.__cause__, WorkerTraceback)
    assert "__getitem__" in str(raised.__cause__) and "cat.png" in str(raised.__cause__)


@forks
@pytest.mark.parametrize(("kind", "note"), [(Broken, "row 3 of the"), (BrokenStream, "after 3 rows of the")])
def test_an_error_that_cannot_travel_is_left_to_torch(loader_settings: Settings, kind: Any, note: str) -> None:
    raised = failure(loader_of(kind(Strange(7, where="here")), loader_settings(num_workers=1)))
    assert "Strange: code 7" in str(raised)
    if hasattr(raised, "add_note"):  # older interpreters print no notes
        assert note in str(raised)


@forks
def test_rows_before_the_bad_one_still_come_from_workers(loader_settings: Settings) -> None:
    for dataset in (Broken(KeyError()), BrokenStream(KeyError())):
        came = []
        with pytest.raises(KeyError):
            for batch in loader_of(dataset, loader_settings(num_workers=1), batch_size=1):
                came += batch["x"].tolist()
        assert came == [0, 1]  # one batch is read ahead, and that is where it breaks


@forks
def test_workers_end_with_the_error(loader_settings: Settings) -> None:
    """Left to the collector of garbage, each would keep the process waiting for five seconds when it exits."""
    for dataset in (Broken(KeyError()), BrokenStream(KeyError())):
        before = set(multiprocessing.active_children())
        loader = loader_of(dataset, loader_settings(num_workers=2), batch_size=1)
        with pytest.raises(KeyError):
            list(loader)
        assert set(multiprocessing.active_children()) == before


def test_an_error_on_the_way_to_pinned_memory(loader_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "can_pin_memory", lambda: True)
    for dataset in (Broken(KeyError("x")), BrokenStream(KeyError("x"))):
        loader = loader_of(dataset, loader_settings(pin_memory=True))
        monkeypatch.setattr(accelerator, "can_pin_memory", lambda: False)
        raised = failure(loader)
        assert raised is dataset.error and "of the training set" in notes(raised)[0]
        monkeypatch.setattr(accelerator, "can_pin_memory", lambda: True)


def test_a_collator_of_the_user_keeps_its_error(loader_settings: Settings) -> None:
    error = ZeroDivisionError("mine")
    rows = [{"x": number} for number in range(20)]
    raised = failure(loader_of(rows, loader_settings(), batch_size=12, collate_fn=partial(refuse, error)))
    assert raised is error
    assert notes(raised) == [
        "ostinato: while rows 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all) of the training set were collated by refuse"
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"x": None}, "'x' of row 1 of the training set is None"),
        ({"x": "1"}, "'x' of row 1 of the training set is text: '1'"),
        ({"x": [1]}, "'x' of row 1 of the training set is a list of 1"),
        ({"y": 1}, "row 1 of the training set has no 'x'"),
        (None, "row 1 of the training set is None"),
    ],
)
def test_what_stands_out_is_shown(loader_settings: Settings, row: Any, text: str) -> None:
    raised = failure(loader_of([{"x": 1}, row], loader_settings(), collate_fn=partial(refuse, KeyError())))
    assert notes(raised)[1:] == [f"ostinato: possible cause: {text}"]


@pytest.mark.parametrize("rows", [[{"text": "a"}, {"text": "b"}], [(1, 2), (3, 4)], [{"x": [1]}, {"x": [1, 2]}]])
def test_nothing_stands_out_where_rows_are_alike(loader_settings: Settings, rows: list[Any]) -> None:
    assert len(notes(failure(loader_of(rows, loader_settings(), collate_fn=partial(refuse, KeyError()))))) == 1


def test_a_transform_that_misses_a_column_is_told_who_took_it(loader_settings: Settings) -> None:
    datasets = pytest.importorskip("datasets")
    from ostinato.data.columns import remove_unused_columns

    table = datasets.Dataset.from_dict({"image": [1, 2], "label": [0, 1]})
    table.set_transform(lambda rows: {"x": rows["image"], "label": rows["label"]})
    raised = failure(loader_of(remove_unused_columns(table, ["x", "label"]), loader_settings()))
    assert isinstance(raised, KeyError) and "remove_unused_columns=False" in notes(raised)[1]


# --------------------------------------------------------------------------------------------- rows by their numbers


def test_collators_know_places_and_loaders_numbers(loader_settings: Settings) -> None:
    rows = [{"x": 1}, {"x": 2}, {"x": "3"}]
    with pytest.raises(WrongValueError, match=r"'x' of row 1 of the batch is text: '3'"):
        default_data_collator(rows[1:])
    raised = failure(loader_of(rows, loader_settings(), sampler=[1, 2]))
    assert isinstance(raised, WrongValueError) and "'x' of row 2 of the training set is text: '3'" in str(raised)
    assert isinstance(raised.__cause__, TypeError)


def test_streams_are_counted(loader_settings: Settings) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter([{"x": 1}] * 5 + [{"x": None}] + [{"x": 1}] * 4)

    raised = failure(loader_of(Stream(), loader_settings()))
    assert "'x' of row 5 of the training set is None" in str(raised)
    raised = failure(loader_of(Stream(), loader_settings(world_size=2, rank=0)))
    assert "'x' of row 5 of the training set is None" in str(raised)


def test_the_filter_of_columns_is_seen_through(loader_settings: Settings) -> None:
    rows = [{"note": "a", "x": [1]}, {"note": "b", "x": [1, 2]}]
    collator = RemoveColumnsCollator(default_data_collator, ["x", "labels"])
    assert "'x' has different lengths" in str(failure(loader_of(rows, loader_settings(), collate_fn=collator)))
    raised = failure(loader_of([(1, 2)], loader_settings(), collate_fn=collator))
    assert isinstance(raised, NotARowError) and '{"x": ..., "labels": ...}' in raised.fix


class Padder:
    """A tokenizer of which nothing is known but that it pads."""

    model_input_names = ("input_ids", "attention_mask")

    def pad(self, rows: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        longest = max(len(row["input_ids"]) for row in rows)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        columns["input_ids"] = [ids + [0] * (longest - len(ids)) for ids in columns["input_ids"]]
        return {name: torch.tensor(values) for name, values in columns.items()}


def test_choices_are_counted_as_rows(loader_settings: Settings) -> None:
    good = {"input_ids": [[1, 2], [3]], "attention_mask": [[1], [1]], "label": 0}
    bad = {"input_ids": [[1, 2], [3]], "attention_mask": [[1], [None]], "label": 0}
    collator = DataCollatorForMultipleChoice(Padder())
    raised = failure(loader_of([good, good, good, bad], loader_settings(), batch_size=4, collate_fn=collator))
    assert "'attention_mask' of row 3 of the training set holds None" in str(raised)


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (
            [{"input_ids": [1], "note": "a"}] * 2,
            WrongValueError,
            ["column 'note' of the batch holds text (row 0: 'a')"],
        ),
        (
            [{"input_ids": [1], "labels": 1}, {"input_ids": [1]}],
            MissingColumnError,
            ["row 1 of the batch", "'labels'"],
        ),
        ([{"input_ids": [1], "labels": None}] * 2, WrongValueError, ["'labels'", "fill in"]),
        ([{"input_ids": [1]}, {"input_ids": None}], WrongValueError, ["'input_ids' of row 1 of the batch is None"]),
        ([{"text": "a"}] * 2, MissingColumnError, ["raw text", "tokenizer("]),
        ([{"ids": [1]}] * 2, MissingColumnError, ["'input_ids'", "rename 'ids' to 'input_ids'"]),
        ([{"input_ids": [1], "labels": [1]}, {"input_ids": [1, 2], "labels": [1, 2]}], RaggedError, ["ForTokenClass"]),
        ([{"input_ids": [1], "labels": [1, 2]}, {"input_ids": [1], "labels": [1]}], RaggedError, ["1 tokens and 2"]),
        ([{"input_ids": [1], "a": [1, 2]}, {"input_ids": [1], "a": [1]}], RaggedError, ["'a' has different lengths"]),
    ],
)
def test_any_tokenizer_that_cannot_pad_is_explained(rows: list[Any], kind: type, words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        DataCollatorWithPadding(Padder())(rows)
    assert isinstance(caught.value, DataError) and all(word in str(caught.value) for word in words)
    assert caught.value.__cause__ is not None


def test_an_error_of_a_tokenizer_that_rows_do_not_explain_stays() -> None:
    class Refusing(Padder):
        def pad(self, rows: Any, **_: Any) -> Any:
            raise OSError("no vocabulary")

    with pytest.raises(OSError, match="no vocabulary"):
        DataCollatorWithPadding(Refusing())([{"input_ids": [1]}])


COLLATORS_OF_TRANSFORMERS = [
    ("DataCollatorWithPadding", [{"input_ids": [5], "labels": "a"}] * 2, "holds text"),
    ("DataCollatorWithPadding", [{"input_ids": [5]}, {"input_ids": [5, 6], "x": 1}], None),
    ("DataCollatorForTokenClassification", [{"input_ids": [5], "labels": [1] * n} for n in (1, 3)], "1 tokens and 3"),
    ("DataCollatorForTokenClassification", [{"input_ids": [5], "labels": ["O"]}] * 2, "holds text"),
    ("DataCollatorForSeq2Seq", [{"input_ids": [5], "labels": "a"}] * 2, "text_target"),
    ("DataCollatorForLanguageModeling", [{"text": "a"}] * 2, "raw text"),
    ("default_data_collator", [{"x": [1]}, {"x": [1, 2]}], "different lengths"),
    ("default_data_collator", [(1, 2)] * 2, "not a dict"),
]


@pytest.mark.parametrize(("name", "rows", "words"), COLLATORS_OF_TRANSFORMERS)
def test_collators_of_transformers_are_explained_too(
    loader_settings: Settings, name: str, rows: list[Any], words: str | None
) -> None:
    transformers = pytest.importorskip("transformers")

    options = {"mlm": False} if name == "DataCollatorForLanguageModeling" else {}
    collator = getattr(transformers, name)
    collator = collator if name.startswith("default") else collator(tiny.tokenizer(), **options)
    loader = loader_of(rows, loader_settings(), collate_fn=collator)
    if words is None:
        assert len(list(loader)) == 1
    else:
        raised = failure(loader)
        assert isinstance(raised, RowsError) and words in str(raised) and "the training set" in str(raised)
        assert isinstance(raised, type(raised.__cause__))


def test_errors_travel() -> None:
    for kind in (NotARowError, MissingColumnError, WrongValueError, RaggedError, NotADataSetError, CollatorError):
        error = pickle.loads(pickle.dumps(kind("a", "b", "c")))
        assert type(error) is kind and str(error) == "a\n  why: b\n  fix: c"


# ---------------------------------------------------------------------------------------------------------- no batches


def test_a_stream_that_gives_nothing(loader_settings: Settings) -> None:
    rows = iter([{"x": 1}, {"x": 2}])
    loader = loader_of(rows, loader_settings())
    assert len(list(loader)) == 1
    assert list(loader) == []  # read once: the loop stops, and what was trained stays
    with pytest.raises(DataError, match="yielded no batch"):
        list(loader_of(rows, loader_settings()))
    assert list(loader_of(rows, loader_settings(), training=False)) == []


def test_a_sampler_that_gives_nothing(loader_settings: Settings) -> None:
    with pytest.raises(DataError, match="the sampler of the training set yields no rows"):
        loader_of([{"x": 1}], loader_settings(), sampler=SubsetRandomSampler([]))
    with pytest.raises(DataError, match="yielded no batch"):
        list(loader_of([{"x": 1}], loader_settings(), sampler=iter(())))


def test_a_pass_over_a_stream_draws_one_number_as_torch_does(loader_settings: Settings) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[dict[str, int]]:
            return iter([{"x": 1}] * 3)

    torch.manual_seed(0)
    list(loader_of(Stream(), loader_settings()))
    ours = torch.get_rng_state()
    torch.manual_seed(0)
    list(DataLoader(Stream(), batch_size=2))
    assert torch.equal(ours, torch.get_rng_state())


# ------------------------------------------------------------------------------------------------------ no false alarm


class Store(Mapping[Any, Any]):
    """A data set that happens to be a mapping, with rows by number."""

    def __getitem__(self, index: int) -> dict[str, int]:
        if index >= 3:
            raise KeyError(index)
        return {"x": index}

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


class Batch(UserDict):  # type: ignore[type-arg]
    """A batch that is made of rows."""

    def __init__(self, rows: list[Any]) -> None:
        super().__init__(default_data_collator(rows))

    def __call__(self) -> None: ...


def test_what_works_is_not_refused(loader_settings: Settings) -> None:
    for dataset in (Store(), {number: {"x": number} for number in range(3)}, np.array([{"x": 1}] * 3)):
        assert len(list(loader_of(dataset, loader_settings()))) == 2
    by_name = {"a": {"x": 1}, "b": {"x": 2}}
    assert len(list(loader_of(by_name, loader_settings(), sampler=["a", "b"]))) == 1
    one_by_one = DataLoader([{"x": 1}] * 3, batch_size=None)  # type: ignore[arg-type]
    assert len(list(loader_of(one_by_one, loader_settings()))) == 2
    (batch,) = loader_of([{"x": 1}], loader_settings(), collate_fn=Batch)
    assert batch["x"].tolist() == [1]


def test_a_series_of_rows_is_a_data_set(loader_settings: Settings) -> None:
    pandas = pytest.importorskip("pandas")
    assert len(list(loader_of(pandas.Series([{"x": 1}] * 3), loader_settings()))) == 2
    with pytest.raises(NotADataSetError, match="DataFrame"):
        check_data_set(pandas.DataFrame({"x": [1]}), "training set")


@pytest.mark.parametrize("rows", [["w1 w2"], ["12", "3"]])
def test_text_is_never_read_as_numbers(rows: list[str]) -> None:

    pytest.importorskip("transformers")
    from ostinato.data.collators.language_modeling import DataCollatorForLanguageModeling

    with pytest.raises(NotARowError, match="is text"):
        DataCollatorForLanguageModeling(tiny.tokenizer(), mlm=False)(rows)


def test_labels_that_are_filled_up_are_mentioned_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"input_ids": [1, 2], "labels": [1, 2]}, {"input_ids": [1, 2, 3], "labels": [1, 2]}]
    collator = DataCollatorForTokenClassification(Padder())
    collator(rows[:1])
    assert capsys.readouterr().err == ""
    for _ in range(2):
        assert collator(rows)["labels"].tolist() == [[1, 2, -100], [1, 2, -100]]
    assert capsys.readouterr().err.count("a row with 3 tokens has 2 labels") == 1


# -------------------------------------------------------------------------------------------- what the model is given


class Model(torch.nn.Module):
    def forward(self, x, y=None, labels=None): ...


class Tokens(torch.nn.Module):
    main_input_name = "input_ids"

    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, labels=None, **kwargs): ...


class Anything(torch.nn.Module):
    def forward(self, **batch): ...


@pytest.mark.parametrize(
    ("model", "given", "dropped", "words"),
    [
        (Model(), ["labels"], ["xs"], ["'x', which", "rename 'xs' to 'x'"]),
        (Model(), [], [], ["'x'", "the batch is empty", "add 'x'"]),
        (Model(), ["features", "labels"], [], ["the batch has features, labels", "rename 'features' to 'x'"]),
        (Tokens(), ["labels"], ["tokens"], ["'input_ids'", "rename 'tokens' to 'input_ids'"]),
        (Tokens(), ["labels", "attention_mask"], ["text"], ["'input_ids'", "if 'text' is text, tokenize it"]),
    ],
)
def test_missing_inputs(model: Any, given: list[str], dropped: list[str], words: list[str]) -> None:
    error = find_missing_inputs(model, given, dropped, ["labels"])
    assert isinstance(error, DataError) and isinstance(error, TypeError)
    assert all(word in str(error) for word in words)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Model(), ["x"]),
        (Model(), ["x", "labels"]),
        (Tokens(), ["input_ids"]),
        (Tokens(), ["inputs_embeds", "labels"]),
        (Anything(), ["labels"]),
    ],
)
def test_nothing_is_missing(model: Any, given: list[str]) -> None:
    assert find_missing_inputs(model, given, ["other"], ["labels"]) is None


def test_a_batch_that_is_none() -> None:
    assert find_batch_fault({"x": 1}, list) is None and find_batch_fault(UserDict(), list) is None
    error = find_batch_fault([1], refuse)
    assert isinstance(error, TypeError) and "refuse returned a list, not a dict" in str(error)
    assert "default_data_collator returned None" in str(find_batch_fault(None, default_data_collator))


@pytest.mark.parametrize(
    ("rows", "names", "words"),
    [
        ([{"x": 1, "labels": "good"}] * 2, ["labels"], ["'labels'", "'good'", "number the classes"]),
        (
            [{"x": 1, "label": None}, {"x": 1, "label": 1}],
            ["labels"],
            ["'label' of row 4 of the training set is None"],
        ),
        ([{"x": 1, "labels": None}] * 2, ["labels"], ["column 'labels'", "is None"]),
        ([{"x": 1}, {"x": 1, "labels": 1}], ["labels"], ["row 4 of the training set has no 'labels'"]),
        ([{"text": "a", "labels": 1}] * 2, ["input_ids"], ["raw text", "tokenizer("]),
        ([{"x": "1.5"}] * 2, ["x"], ["'x'", "'1.5'", "convert it to numbers"]),
    ],
)
def test_columns_that_the_collator_left_out(rows: list[Any], names: list[str], words: list[str]) -> None:
    error = find_absent_columns([None] * 4 + rows, [4, 5], "training set", names)
    assert error is not None and all(word in str(error) for word in words)


def test_columns_that_are_there_or_cannot_be_seen() -> None:
    assert find_absent_columns([{"x": 1, "labels": 1}], [0], "training set", ["labels"]) is None
    assert find_absent_columns([{"x": 1}], [0], "training set", ["labels"]) is None
    assert find_absent_columns([(1, 2)], [0], "training set", ["labels"]) is None
    assert find_absent_columns(Broken(KeyError()), [3], "training set", ["labels"]) is None
    assert find_absent_columns(iter([]), [0], "training set", ["labels"]) is None


def test_names_of_rows() -> None:
    assert RowNames("evaluation set", [np.int64(3), torch.tensor(4), "five"]).name_all() == (
        "rows 3, 4, 'five' of the evaluation set"
    )
    assert RowNames("batch", [9]).name_all() == "row 9 of the batch"
