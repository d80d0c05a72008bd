"""Why a batch failed: what is named, what is left alone, and what is noted."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.core.errors import DataError
from ostinato.core.phrases import format_items
from ostinato.data.nonfinite_inputs import describe_nonfinite_inputs
from ostinato.diagnostics.column_errors import find_label_column
from ostinato.diagnostics.context import FailureContext, describe_tree, find_column, was_entered
from ostinato.diagnostics.exception_notes import MemorySettings, get_callable_name, note_function
from ostinato.diagnostics.failures import explain_failure, name_mistake
from tests.support import tiny
from tests.support.errors import raised

MEMORY = MemorySettings(4, 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 3)

    def forward(self, x, labels=None):
        return self.second(self.first(x))


def build_context(model: nn.Module | None = None, **batch: Any) -> FailureContext:
    return FailureContext(model or Net(), batch, label_names=("labels",), rows=lambda: [30, 10, 20])


X, LABELS = torch.randn(3, 4), torch.tensor([0, 1, 2])


# ------------------------------------------------------------------------------------------------- what is not named


def test_an_error_in_an_inner_layer_is_not_explained() -> None:
    """Only what a column does to the layer it meets is a mistake in the data."""
    error = raised(lambda: nn.Linear(7, 2)(Net()(X)))
    assert name_mistake(error, build_context(x=X, labels=LABELS)) is None


def test_a_target_that_is_not_a_column_is_not_explained() -> None:
    error = raised(lambda: nn.functional.cross_entropy(X, torch.tensor([9, 9, 9])))
    assert name_mistake(error, build_context(x=X, labels=LABELS)) is None


def test_an_index_that_is_not_a_column_is_not_explained() -> None:
    error = raised(lambda: nn.Embedding(3, 2)(torch.tensor([[5]])))
    assert name_mistake(error, build_context(x=X, labels=LABELS)) is None


def test_a_wrong_call_inside_forward_is_not_explained() -> None:
    class Outer(Net):
        def forward(self, x, labels=None):
            return self.first(x, extra=1)

    model = Outer()
    error = raised(lambda: model(X))
    assert "unexpected keyword" in str(error)
    assert name_mistake(error, build_context(model, x=X)) is None


def test_the_same_message_from_other_code_is_not_explained() -> None:
    def helper(x):
        return x

    error = raised(lambda: helper(x=1, labels=2))
    assert name_mistake(error, build_context(x=X, labels=LABELS)) is None


def test_named_errors_are_returned_unchanged() -> None:
    error = DataError("known already")
    assert explain_failure(error, build_context(x=X), "at step 1", MEMORY) is error
    assert getattr(error, "__notes__", []) == []


def test_a_failing_explanation_returns_the_original_error() -> None:
    class Odd(dict):
        def __iter__(self):
            raise RuntimeError("odd")

        keys = items = values = __iter__

    error = ValueError("what happened first")
    assert explain_failure(error, FailureContext(Net(), Odd(x=X)), "at step 1", MEMORY) is error
    broken = FailureContext(Net(), {"x": X}, rows=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    assert explain_failure(error, broken, "at step 1", MEMORY) is error


# ------------------------------------------------------------------------------------------------------- what is found


def test_a_column_is_found_by_its_values() -> None:
    columns = {"x": X, "labels": LABELS, "mask": torch.ones(3, 4)}
    assert find_column(X, columns) == "x"
    assert find_column(X.clone().view(2, 6), columns) == "x"
    assert find_column(LABELS.float(), columns) == "labels"
    assert find_column(X + 1, columns) is None
    assert find_column(torch.zeros(0), {"empty": torch.zeros(0)}) is None
    assert find_column("text", columns) is None


def test_a_flattened_column_is_found() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(10, 2))
    picture = torch.randn(3, 3, 4)
    error = raised(lambda: model(picture))
    named = name_mistake(error, build_context(model, picture=picture))
    assert named is not None
    assert named[0].what == "column 'picture' has 12 features, and layer '1' of Sequential takes 10"


def test_rows_by_their_number_in_the_data() -> None:
    labels = torch.tensor([0, 7, 8])
    error = raised(lambda: nn.functional.cross_entropy(torch.randn(3, 3), labels))
    named = name_mistake(error, build_context(x=X, labels=labels))
    assert named is not None
    assert named[0].why == "it is in rows 10, 20 of the training set; the labels of this batch range from 0 to 8"


def test_label_types_that_fail_in_backward() -> None:
    """Older versions of torch say this in the backward pass."""
    error = RuntimeError("Found dtype Long but expected Float")
    named = name_mistake(error, build_context(x=X, labels=LABELS))
    assert named is not None
    assert named[0].what == "column 'labels' holds integers (int64), and must hold floats"
    assert name_mistake(error, build_context(x=X, labels=LABELS.float())) is None


def test_device_side_asserts_are_explained_on_the_host() -> None:
    pytest.importorskip("transformers")
    error = RuntimeError("CUDA error: device-side assert triggered")
    batch = {"input_ids": torch.full((3, 4), 5), "labels": LABELS}
    named = name_mistake(error, build_context(tiny.bert(num_labels=2), **batch))
    assert named is not None
    assert isinstance(named[0], RuntimeError)


@pytest.mark.parametrize("compiled", [False, True])
def test_was_entered(compiled: bool) -> None:
    def inner(x):
        raise ValueError

    @functools.wraps(inner)
    def wrapper(*args, **kwargs):
        return inner(*args, **kwargs)

    function = wrapper if compiled else inner
    assert was_entered(raised(lambda: function(1)), function)
    assert not was_entered(raised(lambda: function(1, 2, 3)), function)
    assert was_entered(raised(lambda: Metric()(1)), Metric())
    assert not was_entered(raised(lambda: Metric()()), Metric())
    assert was_entered(ValueError(), len), "nothing is known of a built-in function"


class Metric:
    def __call__(self, prediction):
        raise ValueError


# ------------------------------------------------------------------------------------------------------------ in words


def test_describe_tree() -> None:
    assert describe_tree({"x": X, "labels": LABELS}) == "x (3, 4) float32, labels (3,) int64"
    assert describe_tree((X.numpy(), (LABELS, None))) == "a tuple of (3, 4) float32, a tuple of (3,) int64, None"
    assert describe_tree(tuple([X] * 9)).endswith("(3, 4) float32, …")
    assert describe_tree(["a"]) == "list"


def test_format_items() -> None:
    assert format_items("row", [7]) == "row 7"
    assert format_items("row", [7, 8]) == "rows 7, 8"
    assert format_items("row", list(range(9))) == "rows 0, 1, 2, 3, 4, 5, … (9 in all)"


def test_rows_without_known_indices() -> None:
    assert FailureContext(Net(), {"x": X}).describe_rows([1, 2]) == "rows 1, 2 of the batch"
    assert FailureContext(Net(), {"x": X}, rows=lambda: [5]).describe_rows([1]) == "row 1 of the batch"
    assert build_context(x=X).describe_row(1) == "row 10 of the training set"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "target"], "target"),
        (["x", "Label"], "Label"),
        (["x", "lables"], "lables"),
        (["y", "targets"], "targets"),
        (["x", "text", "idx", "labels"], None),
        ([], None),
    ],
)
def test_find_label_column(names: list[str], expected: str | None) -> None:
    assert find_label_column(names, ["labels"]) == expected


def test_not_finite() -> None:
    bad = torch.tensor([[1.0, 2.0], [float("inf"), 0.0]])
    batches = [{"x": torch.ones(2, 2), "n": 3}, {"x": bad, "y": torch.tensor([0.0, float("nan")])}, "odd"]
    assert describe_nonfinite_inputs(batches, [4, 5, 6, 7]) == (
        "'x' is inf in row 7 of the training set; 'y' is nan in row 7 of the training set"
    )
    assert (
        describe_nonfinite_inputs(batches, None)
        == "'x' is inf in row 1 of its batch; 'y' is nan in row 1 of its batch"
    )
    assert describe_nonfinite_inputs([{"x": torch.ones(2)}], [1, 2]) == ""


def test_memory_in_evaluation() -> None:
    assert MemorySettings(8, None).advice.startswith("set per_device_eval_batch_size=4")


def test_notes_of_a_function() -> None:
    error = ValueError()
    note_function(error, "compute_metrics", Metric(), {"predictions": (X.numpy(),), "label_ids": LABELS.numpy()})
    assert error.__notes__ == [
        "ostinato: compute_metrics (Metric) received predictions a tuple of (3, 4) float32, label_ids (3,) int64",
        "ostinato: predictions is a tuple of all outputs besides the loss; predictions[0] is the first",
    ]
    assert get_callable_name(functools.partial(len)) == "partial"


# -------------------------------------------------------------------------------------- whose exception it is not
