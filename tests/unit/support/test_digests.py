"""Digests of tensors and arrays: equal where the numbers are, and of no other use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.digests import Digest
from tests.support.records import first_difference

VALUES: dict[str, Any] = {
    "float32": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.arange(6.0, dtype=torch.bfloat16).reshape(2, 3),
    "int64": torch.arange(6).reshape(2, 3),
    "bool": torch.tensor([[True, False, True]]),
    "no dimension": torch.tensor(1.5),
    "nothing": torch.zeros(0, 3),
    "array": np.arange(6.0).reshape(2, 3),
    "array of integers": np.arange(6).reshape(2, 3),
    "NaN": torch.tensor([1.0, float("nan"), float("-inf")]),
    "array with NaN": np.array([1.0, float("nan"), float("-inf")]),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_same_numbers(name: str) -> None:
    value = VALUES[name]
    again = value.clone() if isinstance(value, torch.Tensor) else value.copy()
    for a, b in [(Digest.of(value), again), (again, Digest.of(value)), (Digest.of(value), Digest.of(again))]:
        assert first_difference(a, b) is None
    assert Digest.of(value).shape == tuple(value.shape)
    assert Digest.of(value).dtype == value.dtype


def test_layout_does_not_matter() -> None:
    value = torch.arange(6.0).reshape(2, 3)
    assert first_difference(Digest.of(value), value.t().contiguous().t()) is None
    assert first_difference(Digest.of(value.numpy()), np.asfortranarray(value.numpy())) is None


def test_zeros_are_equal_whatever_their_sign() -> None:
    assert first_difference(Digest.of(torch.tensor([0.0])), torch.tensor([-0.0])) is None
    assert first_difference(Digest.of(np.array([0.0])), np.array([-0.0])) is None


@pytest.mark.parametrize(
    "other",
    [
        torch.arange(6.0).reshape(3, 2),
        torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
        torch.arange(6.0).reshape(2, 3).nextafter(torch.tensor(9.0)),
        torch.arange(6.0).reshape(2, 3).numpy(),
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        None,
    ],
    ids=["shape", "dtype", "last bit", "kind", "list", "none"],
)
def test_a_difference(other: Any) -> None:
    found = first_difference(Digest.of(VALUES["float32"]), other, "weights.outer")
    assert found is not None
    assert found.startswith("weights.outer: float32(2, 3)")
    assert "make contract" in found


USES: dict[str, Callable[[Any], Any]] = {
    "compared": lambda digest: digest == torch.zeros(2, 3),
    "compared from the right": lambda digest: digest == [0.0],
    "by numpy": lambda digest: np.array_equal(digest, np.zeros((2, 3))),
    "indexed": lambda digest: digest[0],
    "counted": len,
    "taken for true": bool,
    "looked through": list,
    "subtracted": lambda digest: digest - 1.0,
    "asked": lambda digest: digest.any(),
}


@pytest.mark.parametrize("use", USES)
def test_numbers_cannot_be_read(use: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="were not recorded"):
        USES[use](Digest.of(VALUES["float32"]))
