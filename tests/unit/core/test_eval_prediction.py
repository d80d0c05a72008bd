"""What a metric function may ask of its argument besides unpacking it: names, pairs, text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ostinato.core import eval_prediction
from ostinato.core.errors import MetricError
from ostinato.core.outputs import EvalPrediction

DRAW = np.random.default_rng(0)


class Words:
    """Decodes `w7 w8`; 0 is special."""

    def batch_decode(self, rows, skip_special_tokens=False):
        return [" ".join(f"w{token}" for token in row if token or not skip_special_tokens) for row in rows]


# ------------------------------------------------------------------------------------------------------------- by name


def test_outputs_by_name_and_by_place() -> None:
    logits, hidden = np.zeros((2, 3)), np.ones((2, 4))
    prediction = EvalPrediction((hidden, logits), np.arange(2), output_names=("hidden", "logits"))
    assert prediction.outputs["hidden"] is prediction.outputs[0] is hidden
    assert prediction.logits is logits
    assert prediction.labels is prediction.label_ids
    with pytest.raises(KeyError, match="kept are 'hidden', 'logits'"):
        prediction.outputs["hidden_states"]


def test_outputs_without_names() -> None:
    first, second = np.zeros((2, 3)), np.ones((2, 4))
    prediction = EvalPrediction((first, second), np.arange(2))
    assert list(prediction.outputs) == ["0", "1"]
    assert prediction.logits is first
    alone = EvalPrediction(first, np.arange(2))
    assert alone.outputs["logits"] is alone.logits is first


def test_names_of_other_outputs_are_not_used() -> None:
    """A user's own step may have put something in the place of the model's outputs."""
    prediction = EvalPrediction(np.zeros((2, 3)), np.arange(2), output_names=("a", "b"))
    assert list(prediction.outputs) == ["logits"]


def test_unpacks_into_predictions_and_labels() -> None:
    predictions, labels = EvalPrediction(1, 2, output_names=("a",), shifts_labels=True, processing_class=Words())
    assert (predictions, labels) == (1, 2)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_valid(kind) -> None:
    assert EvalPrediction(None, kind([3, -100])).valid.tolist() == [True, False]
    masks = EvalPrediction(None, (kind([3, -100]), kind([-100, 1]))).valid
    assert [mask.tolist() for mask in masks] == [[True, False], [False, True]]


# ----------------------------------------------------------------------------------------------------------- in pairs


def both(predictions: np.ndarray, labels: np.ndarray, **about):
    """The pairs of arrays and of tensors, which must be the same."""
    guess, truth = EvalPrediction(predictions, labels, **about).aligned()
    tensors = EvalPrediction(torch.from_numpy(predictions), torch.from_numpy(labels), **about).aligned()
    assert np.array_equal(tensors[0].numpy(), guess)
    assert np.array_equal(tensors[1].numpy(), truth)
    return guess, truth


def test_causal_pairs() -> None:
    """Each place with the next label; against a loop over single places."""
    logits, labels = DRAW.random((5, 6, 7)), DRAW.integers(0, 7, (5, 6))
    labels[DRAW.random((5, 6)) < 0.4] = -100
    labels[2] = -100
    places = [(row, place) for row in range(5) for place in range(1, 6) if labels[row, place] != -100]
    guess, truth = both(logits, labels, shifts_labels=True)
    assert np.array_equal(guess, np.stack([logits[row, place - 1] for row, place in places]))
    assert truth.tolist() == [labels[place] for place in places]
    ids, same = both(logits.argmax(-1), labels, shifts_labels=True)
    assert np.array_equal(ids, guess.argmax(-1))
    assert np.array_equal(same, truth)


def test_pairs_in_place() -> None:
    logits, labels = DRAW.random((3, 4, 5)), DRAW.integers(0, 5, (3, 4))
    labels[:, 2:] = -100
    guess, truth = both(logits, labels)
    assert np.array_equal(guess, logits[:, :2].reshape(-1, 5))
    assert np.array_equal(truth, labels[:, :2].reshape(-1))


def test_one_label_per_row_is_never_shifted() -> None:
    logits, labels = DRAW.random((4, 3)), np.array([0, -100, 2, 1])
    guess, truth = both(logits, labels, shifts_labels=True)
    assert np.array_equal(guess, logits[[0, 2, 3]])
    assert truth.tolist() == [0, 2, 1]


def test_single_values_are_a_column() -> None:
    guess, truth = both(np.array([[0.5], [1.5], [2.0]]), np.array([1.0, -100.0, 3.0]))
    assert guess.tolist() == [0.5, 2.0]
    assert truth.tolist() == [1.0, 3.0]


def test_a_table_of_labels_keeps_its_rows() -> None:
    scores, labels = DRAW.random((3, 4)), np.array([[1.0, 0, 1, 0], [-100.0] * 4, [0, 0, -100, 1]])
    guess, truth = both(scores, labels, shifts_labels=True)
    assert np.array_equal(guess, scores[[0, 2]])
    assert np.array_equal(truth, labels[[0, 2]])


def test_classes_kept_as_columns_of_one() -> None:
    guess, truth = both(DRAW.random((3, 4)), np.array([[1], [-100], [2]]))
    assert guess.shape == (2, 4)
    assert truth.tolist() == [1, 2]


def test_images() -> None:
    logits, labels = DRAW.random((2, 5, 3, 4)), DRAW.integers(0, 5, (2, 3, 4))
    labels[0, 0] = -100
    guess, truth = both(logits, labels)
    assert np.array_equal(guess, np.moveaxis(logits, 1, -1)[labels != -100])
    assert np.array_equal(truth, labels[labels != -100])


def test_batches_that_stayed_apart() -> None:
    logits = [DRAW.random((2, 3, 4)), DRAW.random((1, 5, 4))]
    labels = [DRAW.integers(0, 4, part.shape[:2]) for part in logits]
    prediction = EvalPrediction(logits, labels, shifts_labels=True)
    guess, truth = prediction.aligned()
    assert guess.shape == (2 * 2 + 4, 4)
    assert truth.tolist() == [*labels[0][:, 1:].reshape(-1), *labels[1][:, 1:].reshape(-1)]
    assert [part.shape for part in prediction.logits] == [part.shape for part in logits]


def test_all_labels_ignored() -> None:
    guess, truth = both(np.zeros((0, 4, 5)), np.zeros((0, 4), dtype=int), shifts_labels=True)
    assert guess.shape == (0, 5)
    assert truth.shape == (0,)


def test_an_array_in_a_file_is_not_read_into_memory(tmp_path) -> None:
    inner = DRAW.random((7, 3, 4))
    stored = np.memmap(tmp_path / "logits", dtype=inner.dtype, mode="w+", shape=inner.shape)
    stored[:] = inner

    class InFile(np.ndarray):
        """Says how it was picked from."""

        picked: list = []

        def __getitem__(self, key):
            self.picked.append(key)
            return super().__getitem__(key)

    labels = DRAW.integers(0, 4, (7, 3))
    guess, _ = EvalPrediction(stored.view(InFile), labels).aligned()
    assert np.array_equal(guess, inner.reshape(-1, 4))
    assert len(InFile.picked) == 1


def test_shapes_that_cannot_be_paired() -> None:
    with pytest.raises(MetricError, match=r"predictions \(2, 5, 3\) cannot be paired with labels \(2, 4\)"):
        EvalPrediction(np.zeros((2, 5, 3)), np.zeros((2, 4), dtype=int)).aligned()
    with pytest.raises(MetricError, match="here are 2"):
        EvalPrediction((np.zeros(2), np.zeros(2)), (np.zeros(2), np.zeros(2))).aligned()
    with pytest.raises(MetricError, match="there are no labels"):
        EvalPrediction(np.zeros(2), ()).aligned()


def test_blocks_are_the_whole() -> None:
    prediction = EvalPrediction(
        (np.arange(7), np.arange(14).reshape(7, 2)), np.arange(7), inputs=np.arange(7), output_names=("a", "b")
    )
    parts = list(prediction.blocks(rows=3))
    assert [len(part.labels) for part in parts] == [3, 3, 1]
    assert np.array_equal(np.concatenate([part.outputs["b"] for part in parts]), prediction.outputs["b"])
    assert np.concatenate([part.inputs for part in parts]).tolist() == list(range(7))


# ------------------------------------------------------------------------------------------------------------- as text


def test_text_of_generated_ids_and_of_labels() -> None:
    prediction = EvalPrediction(
        np.array([[7, 8, 0], [9, -100, -100]]), np.array([[7, -100], [9, 0]]), processing_class=Words()
    )
    assert prediction.pred_text == ["w7 w8", "w9"]
    assert prediction.label_text == ["w7", "w9"]


@pytest.mark.parametrize("block", [1, 32 << 20])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_text_of_logits(kind, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most likely token of each place, a block of rows at a time; places that fill up a short row are no text."""
    monkeypatch.setattr(eval_prediction, "BLOCK_BYTES", block)
    logits = np.full((2, 3, 10), -1.0)
    logits[0, [0, 1], [7, 8]] = logits[1, 0, 9] = 1.0
    logits[0, 2], logits[1, 1:] = -100, -100
    prediction = EvalPrediction(kind(logits), kind(np.zeros((2, 3), dtype=int)), processing_class=Words())
    assert prediction.pred_text == ["w7 w8", "w9"]


def test_arrays_that_are_not_text() -> None:
    with pytest.raises(MetricError, match="pass processing_class=tokenizer"):
        EvalPrediction(np.zeros((1, 2), dtype=int), np.zeros((1, 2), dtype=int)).pred_text  # noqa: B018
    with pytest.raises(MetricError, match=r"are not text: an array of shape \(3, 2\)"):
        EvalPrediction(np.zeros((3, 2)), np.zeros(3), processing_class=Words()).pred_text  # noqa: B018
