"""What is handed back, and what a metric function receives."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.core import outputs
from tests.support.apis import guest, load_library

P, L, IN, X = (np.full(2, float(number)) for number in range(4))
SHAPES = {
    "two": dict(predictions=P, label_ids=L),
    "inputs": dict(predictions=P, label_ids=L, inputs=IN),
    "losses": dict(predictions=P, label_ids=L, losses=X),
    "all": dict(predictions=P, label_ids=L, inputs=IN, losses=X),
}


def test_prediction_unpacks() -> None:
    predictions, labels = outputs.EvalPrediction(P, L)
    assert predictions is P
    assert labels is L
    prediction = outputs.EvalPrediction(P, L, inputs=IN)
    assert len(list(prediction)) == 3
    assert prediction[2] is IN
    with pytest.raises(IndexError):
        outputs.EvalPrediction(P, L)[2]


@pytest.mark.parametrize("shape", SHAPES)
def test_prediction_unpacks_as_transformers(shape: str) -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = load_library("transformers").EvalPrediction(**SHAPES[shape])
    ours = outputs.EvalPrediction(**SHAPES[shape])
    assert [id(part) for part in ours] == [id(part) for part in theirs]
    for index in range(len(list(theirs))):
        assert ours[index] is theirs[index]
    for name in ("predictions", "label_ids", "inputs", "losses"):
        assert getattr(ours, name) is getattr(theirs, name)


def test_tuples_have_transformers_fields() -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        load_library("transformers")
        from transformers import trainer_utils

        for name in ("TrainOutput", "EvalLoopOutput", "PredictionOutput", "BestRun"):
            assert getattr(outputs, name)._fields == getattr(trainer_utils, name)._fields
