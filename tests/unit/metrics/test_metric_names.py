"""Metrics by name."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import ostinato.metrics
from ostinato.core.errors import MetricError
from ostinato.metrics import Metric, available, higher_is_better, metric, metrics
from ostinato.metrics.registry import _ALIASES, _KINDS, _PRESETS

PAIR = (np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]))


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("F1", "f1"),
        ("f1-macro", "f1_macro"),
        (" Balanced Accuracy ", "balanced_accuracy"),
        ("MCC", "mcc"),
        ("matthews_corrcoef", "matthews_corrcoef"),
        ("Acc", "acc"),
    ],
)
def test_spellings(asked: str, key: str) -> None:
    assert tuple(metric(asked)(PAIR)) == (key,)


def test_another_key() -> None:
    assert tuple(metric("f1", name="f1_of_spam", positive=1)(PAIR)) == ("f1_of_spam",)


@pytest.mark.parametrize(
    ("asked", "near"),
    [("acuracy", "accuracy"), ("f1-makro", "f1_macro"), ("blue", "bleu"), ("spearmn", "spearman"), ("rogue", "rouge")],
)
def test_misspelt_name_suggests_another(asked: str, near: str) -> None:
    with pytest.raises(MetricError) as caught:
        metric(asked)
    assert repr(asked) in caught.value.what
    assert f"metric({near!r})" in caught.value.fix


def test_no_similar_name() -> None:
    with pytest.raises(MetricError, match="no name is similar") as caught:
        metric("xyzzy")
    assert "available()" in caught.value.fix


def test_options_are_checked() -> None:
    with pytest.raises(MetricError, match="has no option avarage=") as caught:
        metric("f1", avarage="macro")
    assert caught.value.fix == "average='macro'"
    with pytest.raises(MetricError, match="does not take average=") as caught:
        metric("f1_macro", average="micro")
    assert caught.value.fix == "metric('f1', average='micro')"
    with pytest.raises(MetricError, match="leave out zzz="):
        metric("wer", zzz=1)


def test_every_name_is_listed_and_can_be_made() -> None:
    names = available()
    assert set(names) == {kind.default_name for kind in _KINDS} | set(_PRESETS)
    assert all(line for line in names.values())
    assert set(_ALIASES.values()) <= set(names)
    assert not set(_ALIASES) & set(names)
    for name in [*names, *_ALIASES]:
        if _ALIASES.get(name, name) == "bleu":
            pytest.importorskip("sacrebleu")
        assert isinstance(metric(name), Metric)
        assert isinstance(higher_is_better(name), bool)


def test_several_metrics() -> None:
    both = metrics(["accuracy", ("f1", {"name": "spam"})], interval=0.9, resamples=5)
    assert both.keys == ("accuracy", "accuracy_low", "accuracy_high", "spam", "spam_low", "spam_high")
    assert metrics("accuracy")(PAIR) == {"accuracy": 0.75}


@pytest.mark.parametrize("wanted", [[], [3], [("f1",)], [len]])
def test_several_with_a_wrong_entry(wanted: list[Any]) -> None:
    with pytest.raises(MetricError):
        metrics(wanted)


def test_two_results_of_one_name() -> None:
    with pytest.raises(MetricError, match="two metrics give the result 'f1'") as caught:
        metrics(["f1", ("f1", {"average": "macro"})])
    assert "'name'" in caught.value.fix
    with pytest.raises(MetricError, match="'f1'"):
        metrics(["squad", "f1"])


def test_examples_in_docstrings() -> None:
    """Every example shows what really comes out, and everything public has one."""
    count = 0
    for module in pkgutil.iter_modules(ostinato.metrics.__path__, "ostinato.metrics."):
        result = doctest.testmod(
            importlib.import_module(module.name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS
        )
        assert not result.failed, module.name
        count += result.attempted
    assert count > 80
    for name in ostinato.metrics.__all__:
        assert ">>>" in (getattr(ostinato.metrics, name).__doc__ or ""), name
    for kind in _KINDS:
        assert ">>>" in (kind.__doc__ or ""), kind
