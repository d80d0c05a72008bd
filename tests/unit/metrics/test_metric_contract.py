"""What every metric promises: any chunking, any split over processes and any way of calling give the same result."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.core.outputs import EvalPrediction
from ostinato.metrics import Metric, StreamingMetric, is_streaming, metric, metrics

Data = tuple[Any, Any]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "dogs,", "who", "ran", "home."]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def classes(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 3)), rng.choice([0, 1, 2, -100], size=rows, p=[0.4, 0.3, 0.2, 0.1])


def two_classes(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 2)).astype(np.float32), rng.choice([0, 1, -100], size=rows, p=[0.5, 0.4, 0.1])


def label_tables(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 4)), rng.choice([0, 1, -100], size=(rows, 4), p=[0.5, 0.4, 0.1])


def numbers(rng: np.random.Generator, rows: int) -> Data:
    truth = np.round(rng.normal(size=rows), 1)
    truth[rng.random(rows) < 0.1] = -100
    return truth + rng.normal(size=rows), truth


def tokens(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 7, 5)).astype(np.float32), rng.choice([0, 1, 2, 3, 4, -100], size=(rows, 7))


def texts(rng: np.random.Generator, rows: int) -> Data:
    sides = [[" ".join(rng.choice(WORDS, size=rng.integers(1, 9))) for _ in range(rows)] for _ in range(2)]
    return sides[0], sides[1]


def spans(rng: np.random.Generator, rows: int) -> Data:
    first = rng.integers(0, 6, size=rows)
    return (rng.normal(size=(rows, 9)), rng.normal(size=(rows, 9))), (first, first + rng.integers(0, 3, size=rows))


def images(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 3, 4, 5)), rng.choice([0, 1, 2, -100], size=(rows, 4, 5))


def embeddings(rng: np.random.Generator, rows: int) -> Data:
    answers = rng.normal(size=(rows, 6)).astype(np.float32)
    return answers + rng.normal(size=(rows, 6)).astype(np.float32), answers


def candidates(rng: np.random.Generator, rows: int) -> Data:
    return rng.normal(size=(rows, 8)), rng.choice([*range(8), -100], size=rows)


CASES: dict[str, tuple[Callable[[np.random.Generator, int], Data], dict[str, Any]]] = {
    "accuracy": (classes, {}),
    "balanced_accuracy": (classes, {}),
    "f1_macro": (classes, {}),
    "precision_weighted": (classes, {}),
    "recall_micro": (classes, {}),
    "mcc": (classes, {}),
    "roc_auc": (two_classes, {}),
    "multilabel_accuracy": (label_tables, {}),
    "multilabel_f1": (label_tables, {}),
    "multilabel_f1_samples": (label_tables, {}),
    "multilabel_precision_macro": (label_tables, {}),
    "multilabel_recall_weighted": (label_tables, {}),
    "multilabel_roc_auc": (label_tables, {}),
    "hamming_loss": (label_tables, {}),
    "mse": (numbers, {}),
    "rmse": (numbers, {}),
    "mae": (numbers, {}),
    "r2": (numbers, {}),
    "pearson": (numbers, {}),
    "spearman": (numbers, {}),
    "perplexity": (tokens, {}),
    "token_accuracy": (tokens, {}),
    "seqeval": (tokens, {"label_names": TAGS, "by_type": True}),
    "squad": (texts, {}),
    "squad_v2": (texts, {}),
    "answer_span": (spans, {}),
    "bleu": (texts, {}),
    "chrf": (texts, {}),
    "exact_match": (texts, {}),
    "rouge": (texts, {}),
    "wer": (texts, {}),
    "cer": (texts, {}),
    "mean_iou": (images, {}),
    "retrieval": (embeddings, {}),
    "recall@3": (candidates, {}),
}
KEEPS = {"roc_auc", "multilabel_roc_auc", "spearman", "squad_v2", "retrieval", "recall@3"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    if request.param == "bleu":
        pytest.importorskip("sacrebleu")
    return request.param


def made(case: str, **options: Any) -> Metric:
    return metric(case, **CASES[case][1], **options)


def data(case: str, rows: int = 60, seed: int = 0) -> Data:
    return CASES[case][0](np.random.default_rng(seed), rows)


def cut(part: Any, start: int, stop: int | None) -> Any:
    return tuple(cut(one, start, stop) for one in part) if isinstance(part, tuple) else part[start:stop]


def feed(target: Any, pair: Data, edges: list[int]) -> Any:
    for start, stop in itertools.pairwise(edges):
        target.update(cut(pair[0], start, stop), cut(pair[1], start, stop))
    return target


def same(one: dict[str, float], other: dict[str, float]) -> None:
    assert one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True)


# -------------------------------------------------------------------------------------------------------- streaming


def test_any_chunks_equal_the_whole(case: str) -> None:
    pair = data(case)
    whole = made(case)(pair)
    assert whole.keys() >= set(made(case).keys)
    assert all(isinstance(value, (float, int)) and not isinstance(value, np.generic) for value in whole.values())
    rng = np.random.default_rng(1)
    for _ in range(3):
        edges = [0, *sorted(rng.choice(np.arange(1, 60), size=rng.integers(1, 12), replace=False).tolist()), 60]
        same(feed(made(case), pair, edges).compute(), whole)


def test_merged_processes_equal_the_whole(case: str) -> None:
    pair = data(case)
    for options in ({}, {"interval": 0.9, "resamples": 20}):
        whole = feed(made(case, **options), pair, [0, 60]).compute()
        parts = [
            feed(made(case, **options), pair, [0, 20, 31]),
            made(case, **options),  # a process that got no rows
            feed(made(case, **options), pair, [31, 60]),
        ]
        collected = made(case, **options)
        for part in parts:
            collected.merge(part.state())
        same(collected.compute(), whole)


def test_state_is_numbers_that_can_be_sent(case: str) -> None:
    target = feed(made(case, interval=0.9, resamples=5), data(case), [0, 60])
    for value in target.state().values():
        assert isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    other = made(case, interval=0.9, resamples=5)
    other.merge(pickle.loads(pickle.dumps(target.state())))
    same(other.compute(), target.compute())


def test_state_is_not_changed_by_what_comes_later(case: str) -> None:
    pair = data(case)
    target = feed(made(case), pair, [0, 30])
    before, expected = target.state(), target.compute()
    feed(target, pair, [30, 60])
    restored = made(case)
    restored.merge(before)
    same(restored.compute(), expected)


def test_memory_does_not_grow_with_rows(case: str) -> None:
    small, large = (feed(made(case), data(case, rows), [0, rows]).state() for rows in (60, 240))

    def size(state: dict[str, Any]) -> int:
        return sum(np.asarray(value).nbytes for value in state.values())

    if case in KEEPS:
        assert size(large) > 2 * size(small)
    else:
        assert size(large) == size(small)


def test_reset_forgets(case: str) -> None:
    target = feed(made(case), data(case, seed=5), [0, 60])
    target.reset()
    pair = data(case)
    same(feed(target, pair, [0, 60]).compute(), made(case)(pair))


def test_nothing_seen_is_an_error(case: str) -> None:
    target = made(case)
    with pytest.raises(MetricError, match="nothing to compute") as caught:
        target.compute()
    assert "no rows" in caught.value.why
    empty = cut(data(case), 0, 0)
    target.update(*empty)
    with pytest.raises(MetricError, match="nothing to compute"):
        target.compute()


def test_copies_and_pickles(case: str) -> None:
    pair = data(case)
    target = feed(made(case), pair, [0, 30])
    expected = feed(made(case), pair, [0, 60]).compute()
    copies = [copy.deepcopy(target)] if case == "bleu" else [copy.deepcopy(target), pickle.loads(pickle.dumps(target))]
    for twin in copies:
        same(feed(twin, pair, [30, 60]).compute(), expected)


# ------------------------------------------------------------------------------------------------------------ -100


IGNORING = [name for name, (make, _) in CASES.items() if make not in (texts, embeddings)]


@pytest.mark.parametrize("case", IGNORING)
def test_ignored_labels_do_not_count(case: str) -> None:
    """Whatever is predicted where the label is -100, the result is the same."""
    predictions, references = data(case)
    first = references[0] if isinstance(references, tuple) else references
    first[::7] = -100
    ignored = np.asarray(first) == -100
    expected = made(case)((predictions, references))

    def spoiled(part: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng(9).normal(size=part.shape) * 10
        mask = _where(ignored, part.shape, case)
        return np.where(mask, noise, part).astype(part.dtype)

    changed = tuple(map(spoiled, predictions)) if isinstance(predictions, tuple) else spoiled(predictions)
    same(made(case)((changed, references)), expected)


def _where(ignored: np.ndarray, shape: tuple[int, ...], case: str) -> np.ndarray:
    """The predictions for which ignored labels are meant."""
    if case in ("perplexity", "token_accuracy"):  # the place before
        ignored = np.concatenate([ignored[:, 1:], np.ones((len(ignored), 1), dtype=bool)], axis=1)
    if case == "mean_iou":
        ignored = ignored[:, None]
    while ignored.ndim < len(shape):
        ignored = ignored[..., None]
    return np.broadcast_to(ignored, shape)


@pytest.mark.parametrize("case", IGNORING)
def test_all_labels_ignored_is_an_error(case: str) -> None:
    predictions, references = data(case)
    nothing = (
        tuple(np.full_like(one, -100) for one in references)
        if isinstance(references, tuple)
        else np.full_like(references, -100)
    )
    with pytest.raises(MetricError, match="nothing to compute") as caught:
        made(case)((predictions, nothing))
    assert "-100" in caught.value.why


# ------------------------------------------------------------------------------------------------- ways of calling


def test_ways_of_calling_agree(case: str) -> None:
    pair = data(case)
    target = made(case)
    whole = feed(made(case), pair, [0, 60]).compute()
    target.update(*cut(pair, 0, 10))  # forgotten by the call
    same(target(EvalPrediction(predictions=pair[0], label_ids=pair[1])), whole)
    same(target(pair), whole)
    # batch_eval_metrics=True
    for start, stop in ((0, 20), (20, 40)):
        assert target(cut(pair, start, stop), compute_result=False) == {}
    same(target(cut(pair, 40, 60), compute_result=True), whole)
    same(target(pair, compute_result=True), whole)  # nothing was left over


def test_tensors_and_batches_in_lists(case: str) -> None:
    pair = data(case)
    if isinstance(pair[0], list):
        return
    whole = made(case)(pair)

    def tensors(part: Any) -> Any:
        return tuple(map(tensors, part)) if isinstance(part, tuple) else torch.from_numpy(np.array(part))

    assert made(case)((tensors(pair[0]), tensors(pair[1]))) == pytest.approx(whole, rel=1e-5, nan_ok=True)
    lists = tuple([cut(side, 0, 25), cut(side, 25, 60)] for side in pair)  # eval_do_concat_batches=False
    same(made(case)(lists), whole)


def test_failed_call_leaves_nothing_behind() -> None:
    target = metric("accuracy")
    target(([1, 0], [1, 1]), compute_result=False)
    with pytest.raises(MetricError):
        target(([0.5], [1]), compute_result=False)
    assert target.state() == {"rows": 0, "count": 0}


@pytest.mark.parametrize("wrong", [torch.ones(3), {"logits": 1}, ([1],), "text"])
def test_called_with_something_else(wrong: Any) -> None:
    with pytest.raises(MetricError, match="EvalPrediction"):
        metric("accuracy")(wrong)


def test_no_labels() -> None:
    with pytest.raises(MetricError, match="no labels") as caught:
        metric("accuracy")(EvalPrediction(predictions=np.ones((2, 2)), label_ids=None))  # type: ignore[arg-type]
    assert "label_names" in caught.value.fix


def test_several_model_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    logits = np.array([[0.0, 1.0]])
    for _ in range(2):
        assert metric("accuracy")(((logits, np.zeros((1, 3, 4))), np.array([1]))) == {"accuracy": 1.0}
    assert capsys.readouterr().err.count("first of 2 model outputs") == 1


def test_state_of_another_metric_is_refused() -> None:
    pair = data("accuracy")
    other = feed(metric("f1_macro"), pair, [0, 60])
    with pytest.raises(MetricError, match="cannot merge"):
        feed(metric("accuracy"), pair, [0, 60]).merge(other.state())
    with pytest.raises(MetricError, match="cannot merge"):
        metric("f1_macro", interval=0.9).merge(other.state())
    with pytest.raises(MetricError, match="cannot merge"):
        metric("accuracy").merge({})


def test_batches_of_another_kind_are_refused() -> None:
    target = metric("retrieval")
    target.update(np.ones((2, 3)), np.array([0, 1]))
    with pytest.raises(MetricError, match="this batch has"):
        target.update(np.ones((2, 3)), np.ones((2, 3)))
    target = metric("mse")
    target.update(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(MetricError, match=r"shape \(2,\), earlier ones \(3,\)"):
        target.update(np.ones((2, 2)), np.ones((2, 2)))


# -------------------------------------------------------------------------------------------------------- intervals


def test_interval_holds_the_value_and_no_global_stream_moves(case: str) -> None:
    pair = data(case)
    np.random.seed(3)
    torch.manual_seed(3)
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]
    target = made(case, interval=0.95, resamples=30)
    result = target(pair)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), torch_before)
    same(made(case, interval=0.95, resamples=30)(pair), result)
    names = made(case).keys
    assert set(result) >= set(target.keys) == {*names, *(f"{n}_{b}" for n in names for b in ("low", "high"))}
    for name in names:
        assert result[f"{name}_low"] <= result[f"{name}_high"]
    other = made(case, interval=0.95, resamples=30, seed=1)(pair)
    assert any(other[f"{n}_low"] != result[f"{n}_low"] for n in names) or all(result[n] in (0, 1) for n in names)


def test_interval_is_as_wide_as_theory_says() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, size=2000)
    guess = np.where(rng.random(2000) < 0.8, truth, 1 - truth)
    result = metric("accuracy", interval=0.95)((guess, truth))
    width = 2 * 1.96 * math.sqrt(result["accuracy"] * (1 - result["accuracy"]) / 2000)
    assert result["accuracy_high"] - result["accuracy_low"] == pytest.approx(width, rel=0.1)


def test_interval_draws_rows_not_labels() -> None:
    """Tokens of a row are right or wrong together, so there is as little to know as there are rows."""
    rng = np.random.default_rng(0)
    right = np.repeat(rng.random(100) < 0.5, 50).reshape(100, 50)
    for name in ("accuracy", "recall_micro", "token_accuracy"):
        options = {"shift": False} if name == "token_accuracy" else {}
        result = metric(name, interval=0.95, resamples=400, **options)(
            (right.astype(int), np.ones((100, 50), dtype=int))
        )
        assert result[f"{name}_high"] - result[f"{name}_low"] == pytest.approx(2 * 1.96 * 0.05, rel=0.2)


@pytest.mark.parametrize("interval", [0, 1, 95, -0.5])
def test_interval_is_a_share(interval: float) -> None:
    with pytest.raises(MetricError, match="interval="):
        metric("f1", interval=interval)
    with pytest.raises(MetricError, match="resamples="):
        metric("f1", interval=0.5, resamples=0)


def test_draws_that_cannot_be_scored_are_left_out() -> None:
    result = metric("roc_auc", interval=0.9)(([0.1, 0.9, 0.8], [0, 1, 1]))
    assert result["roc_auc_low"] == result["roc_auc_high"] == 1.0


# --------------------------------------------------------------------------------------------------- the interface


def test_what_is_streaming(case: str) -> None:
    target = made(case)
    assert is_streaming(target) and isinstance(target, StreamingMetric)
    assert not is_streaming(type(target))  # a class that was not called
    assert not is_streaming(lambda prediction: {})
    assert not is_streaming({})


def test_directions_cover_all_keys(case: str) -> None:
    target = made(case, interval=0.5)
    assert tuple(target.directions) == target.keys
    lower = {"hamming_loss", "mse", "rmse", "mae", "perplexity", "wer", "cer"}
    assert set(target.directions.values()) == {case not in lower}


def test_combined_is_a_metric_too() -> None:
    pair = data("accuracy")
    wanted = ["accuracy", ("f1", {"average": "macro"}), metric("mcc")]
    both = metrics(wanted)
    assert is_streaming(both)
    assert both.keys == ("accuracy", "f1", "mcc")
    assert set(both.directions.values()) == {True}
    expected = {**metric("accuracy")(pair), **metric("f1", average="macro")(pair), **metric("mcc")(pair)}
    assert both(EvalPrediction(*pair)) == expected
    assert both(cut(pair, 0, 25), compute_result=False) == {}
    assert both(cut(pair, 25, 60), compute_result=True) == expected


def test_combined_merges() -> None:
    pair = data("accuracy")
    names = ["accuracy", "f1_macro", "balanced_accuracy"]
    collected = metrics(names, interval=0.9, resamples=10)
    for edges in ([0, 25], [25, 60]):
        collected.merge(feed(metrics(names, interval=0.9, resamples=10), pair, edges).state())
    same(collected.compute(), metrics(names, interval=0.9, resamples=10)(pair))
    with pytest.raises(MetricError, match="cannot merge"):
        collected.merge(metric("accuracy").state())


def test_large_logits_are_not_copied() -> None:
    """Perplexity looks at a bounded piece of the logits, whatever their size."""
    logits = np.zeros((8, 64, 5000), dtype=np.float16)  # 5 MB, 10 MB in float32
    labels = np.zeros((8, 64), dtype=np.int64)
    import ostinato.metrics.language as language

    before, language.CHUNK_BYTES = language.CHUNK_BYTES, 1 << 18
    tracemalloc.start()
    try:
        metrics(["perplexity", "token_accuracy"])((logits, labels))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        language.CHUNK_BYTES = before
    assert peak < 2 << 20
