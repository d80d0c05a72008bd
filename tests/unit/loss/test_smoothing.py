"""Label smoothing, bit for bit as transformers'."""

from __future__ import annotations

import inspect

import pytest
import torch

from ostinato.core.errors import TensorTypeError
from ostinato.loss.smoothing import LabelSmoother
from tests.support.apis import guest, load_library


def logits_and_labels(shape=(3, 5), classes=7, ignore=-100, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(*shape, classes, generator=generator).to(dtype)
    labels = torch.randint(0, classes, shape, generator=generator)
    labels[0, -2:] = ignore
    return logits, labels


def test_without_smoothing_it_is_cross_entropy() -> None:
    logits, labels = logits_and_labels()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(LabelSmoother(epsilon=0.0)({"logits": logits}, labels), expected)


def test_it_is_torchs_label_smoothing() -> None:
    logits, labels = logits_and_labels()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(LabelSmoother(epsilon=0.1)((logits,), labels), expected)


@pytest.mark.parametrize("num_items", [None, 9, torch.tensor(9)], ids=["own count", "number", "tensor"])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("ignore", [-100, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_as_transformers(dtype: torch.dtype, ignore: int, shift: bool, num_items) -> None:
    pytest.importorskip("transformers")
    values, gradients = [], []
    with guest("transformers"):
        load_library("transformers")
        from transformers.trainer_pt_utils import LabelSmoother as Theirs

        if num_items is not None and "num_items_in_batch" not in inspect.signature(Theirs.__call__).parameters:
            pytest.skip("this version does not know num_items_in_batch")
        for kind in (Theirs, LabelSmoother):
            logits, labels = logits_and_labels(ignore=ignore, dtype=dtype)
            logits.requires_grad_(True)
            options = {} if num_items is None else {"num_items_in_batch": num_items}
            given = labels.clone()
            loss = kind(epsilon=0.2, ignore_index=ignore)({"logits": logits}, given, shift_labels=shift, **options)
            loss.backward()
            values.append(loss.detach())
            gradients.append(logits.grad)
    assert torch.equal(given, labels)  # ours leaves the labels alone
    assert values[0].dtype == values[1].dtype
    assert torch.equal(values[0], values[1])
    assert torch.equal(gradients[0], gradients[1])


def test_padding_counts_nowhere() -> None:
    logits, labels = logits_and_labels()
    reference = LabelSmoother()({"logits": logits}, labels)
    other = logits.clone()
    other[labels == -100] = 77.0
    assert torch.equal(LabelSmoother()({"logits": other}, labels), reference)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_integers_of_any_size_are_classes(dtype: torch.dtype) -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert LabelSmoother()({"logits": logits}, labels.to(dtype)) == LabelSmoother()({"logits": logits}, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_what_is_no_class_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TensorTypeError, match="label smoothing cannot be applied to labels of type"):
        LabelSmoother()({"logits": torch.randn(2, 3)}, torch.tensor([[1, 0, 1], [0, 0, 0]]).to(dtype))
