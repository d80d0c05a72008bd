"""`evaluate()` and `predict()`: the same arrays, in the same shapes, and the same metrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ostinato.core.notices import forget_notices, listen_to_notices
from tests.support import tiny
from tests.support.parity import check_parity, run_both, run_one
from tests.support.records import assert_same

pytest.importorskip("transformers")

BATCH = {"per_device_eval_batch_size": 4}


def predicted(prediction):
    return prediction.predictions, prediction.label_ids, prediction.metrics


def correct(prediction) -> dict[str, float]:
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((logits.argmax(-1) == prediction.label_ids).mean())}


class Answers(nn.Module):
    """Gives whatever `answer(x, logits, loss)` makes of its numbers."""

    def __init__(self, answer) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.answer = answer

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return self.answer(x, logits, loss)


def answering(answer) -> Answers:
    return tiny.seeded(Answers, answer)


def rows(n: int = 10) -> list[dict]:
    return [{"x": row["x"], "labels": i % 3} for i, row in enumerate(tiny.regression_rows(n))]


ANSWERS = {
    "dict": lambda x, logits, loss: {"loss": loss, "logits": logits},
    "tuple": lambda x, logits, loss: (loss, logits),
    "dict of two": lambda x, logits, loss: {"loss": loss, "logits": logits, "hidden": 2 * x},
    "tuple of two": lambda x, logits, loss: (loss, logits, 2 * x),
    "nested": lambda x, logits, loss: {"loss": loss, "logits": logits, "states": (x, (2 * x, 3 * x))},
    "scalar beside": lambda x, logits, loss: {"loss": loss, "logits": logits, "temperature": logits.mean()},
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_shape_of_the_output(answer: str) -> None:
    def script(api):
        trainer = api.trainer(answering(ANSWERS[answer]), api.args(**BATCH), eval_dataset=rows())
        return predicted(trainer.predict(rows())), trainer.evaluate()

    check_parity(script)


@pytest.mark.parametrize("answer", ["dict of two", "tuple of two"])
def test_ignored_keys(answer: str) -> None:
    def script(api):
        trainer = api.trainer(answering(ANSWERS[answer]), api.args(**BATCH), eval_dataset=rows())
        return predicted(trainer.predict(rows(), ignore_keys=["hidden"]))

    check_parity(script)


@pytest.mark.parametrize("n", [1, 3, 4, 9])
@pytest.mark.parametrize("batch", [1, 4])
def test_size_of_the_last_batch(n: int, batch: int) -> None:
    def script(api):
        trainer = api.trainer(answering(ANSWERS["dict"]), api.args(per_device_eval_batch_size=batch))
        return predicted(trainer.predict(rows(n)))

    check_parity(script)


def test_model_output() -> None:
    def script(api):
        data = tiny.classification_rows(10)
        trainer = api.trainer(tiny.bert(), api.args(**BATCH), eval_dataset=data, compute_metrics=correct)
        return predicted(trainer.predict(data)), trainer.evaluate(), trainer.evaluate(metric_key_prefix="dev")

    theirs, _ = check_parity(script)
    assert "eval_accuracy" in theirs.result[1]
    assert "dev_accuracy" in theirs.result[2]


def test_model_output_with_hidden_states() -> None:
    """Everything but the loss is kept, the states of every layer too."""

    def script(api):
        data = tiny.classification_rows(10)
        trainer = api.trainer(tiny.bert(output_hidden_states=True), api.args(**BATCH))
        return predicted(trainer.predict(data))

    check_parity(script)


def test_ragged_logits_are_padded() -> None:
    """Batches of different lengths: the shorter ones are filled up with -100."""

    def script(api):
        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        trainer = api.trainer(tiny.bert("TokenClassification"), api.args(**BATCH), data_collator=collator)
        return predicted(without_loss(trainer.predict(tiny.token_rows())))

    _, ours = check_parity(script)
    assert (ours.result[0] == -100).any()


@pytest.mark.parametrize("steps", [None, 1, 2])
def test_accumulation_of_evaluation_steps(steps: int | None) -> None:
    def script(api):
        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        args = api.args(eval_accumulation_steps=steps, **BATCH)
        trainer = api.trainer(tiny.bert("TokenClassification"), args, data_collator=collator)
        return predicted(without_loss(trainer.predict(tiny.token_rows())))

    check_parity(script)


def without_loss(output):
    """Of ragged rows transformers' loss is weighted by rows, not by the tokens it averages (see `test_promises`)."""
    return output._replace(metrics={name: value for name, value in output.metrics.items() if name != "test_loss"})


def test_batches_that_are_not_concatenated() -> None:
    def script(api):
        seen = []

        def metric(prediction):
            kinds = type(prediction.predictions).__name__, type(prediction.label_ids).__name__
            seen.append((kinds, [np.shape(batch) for batch in prediction.predictions]))
            return {}

        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        args = api.args(eval_do_concat_batches=False, **BATCH)
        model = tiny.bert("TokenClassification")
        trainer = api.trainer(model, args, data_collator=collator, compute_metrics=metric)
        return without_loss(trainer.predict(tiny.token_rows())).metrics, seen

    check_parity(script)


def counting(calls: list):
    """A metric function that counts its calls and writes down what it was given."""

    def metric(prediction, compute_result=None):
        given = prediction.predictions, prediction.label_ids, prediction.inputs, prediction.losses
        calls.append((given, len(tuple(prediction)), compute_result))
        return {"calls": float(len(calls))}

    return metric


BY_BATCH = {
    "all": {},
    "with inputs and losses": {"include_for_metrics": ["inputs", "loss"]},
    "with losses": {"include_for_metrics": ["loss"]},
    "lists": {"eval_do_concat_batches": False},
    "loss only": {"prediction_loss_only": True},
}


@pytest.mark.parametrize("options", BY_BATCH)
def test_metrics_batch_by_batch(options: str) -> None:
    """Tensors of one batch at a time; a prediction still returns everything."""

    def script(api):
        calls: list = []
        data, args = tiny.classification_rows(10), api.args(batch_eval_metrics=True, **BATCH, **BY_BATCH[options])
        trainer = api.trainer(tiny.bert(), args, compute_metrics=counting(calls))
        return trainer.evaluate(data), predicted(trainer.predict(data)), calls

    theirs, _ = check_parity(script)
    assert len(theirs.result[-1]) == (0 if options == "loss only" else 6)


def test_nested_labels_batch_by_batch() -> None:
    class Pairs(nn.Module):
        main_input_name = "x"

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, labels=None):
            logits = self.layer(x)
            return {"loss": nn.functional.cross_entropy(logits, labels["y"]), "logits": logits}

    def collate(batch):
        labels = {"y": torch.tensor([row["labels"] for row in batch]), "weight": torch.ones(len(batch))}
        return {"x": torch.tensor([row["x"] for row in batch]), "labels": labels}

    def script(api):
        calls: list = []
        args = api.args(batch_eval_metrics=True, include_for_metrics=["inputs"], remove_unused_columns=False, **BATCH)
        trainer = api.trainer(tiny.seeded(Pairs), args, compute_metrics=counting(calls), data_collator=collate)
        return predicted(trainer.predict(rows())), calls

    check_parity(script)


def halves(batch):
    """A collator that gives labels where all rows have them."""
    given = {"x": torch.tensor([row["x"] for row in batch])}
    has_labels = all("labels" in row for row in batch)
    return {**given, "labels": torch.tensor([row["labels"] for row in batch])} if has_labels else given


@pytest.mark.parametrize("by_batch", [True, False], ids=["by batch", "at once"])
@pytest.mark.parametrize("without", [range(4), range(8, 10), range(10)], ids=["first", "last", "all"])
def test_batches_without_labels(without: range, by_batch: bool) -> None:
    """A function is not called with what has no labels."""

    def script(api):
        calls: list = []
        data = [{"x": row["x"]} if number in without else row for number, row in enumerate(rows())]
        args = api.args(batch_eval_metrics=by_batch, remove_unused_columns=False, **BATCH)
        model = answering(lambda x, logits, loss: {"logits": logits} if loss is None else {"loss": loss, "a": logits})
        trainer = api.trainer(model, args, compute_metrics=counting(calls), data_collator=halves)
        return trainer.evaluate(data), predicted(trainer.predict(data)), calls

    theirs, _ = check_parity(script)
    assert len(theirs.result[-1]) == (0 if len(without) == 10 else 4 if by_batch else 2)


class Rewards(nn.Module):
    """What is preferred should score higher; there is nothing to label."""

    main_input_name = "x"

    def __init__(self, returns: str) -> None:
        super().__init__()
        self.layer, self.returns = nn.Linear(4, 2), returns

    def forward(self, x, return_loss=True):
        better, worse = self.layer(x).unbind(-1)
        loss = -nn.functional.logsigmoid(better - worse).mean()
        return (loss, better, worse) if self.returns == "tuple" else {"loss": loss, "better": better, "worse": worse}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_names": []},
        {"label_names": ["labels"]},
        {"eval_do_concat_batches": False},
        {"batch_eval_metrics": True},
        {"include_for_metrics": ["inputs", "loss"]},
        {"prediction_loss_only": True},
    ],
    ids=lambda options: "".join(options) or "defaults",
)
@pytest.mark.parametrize("returns", ["dict", "tuple"])
def test_metrics_of_a_loss_that_needs_no_labels(returns: str, options: dict) -> None:
    """The labels are an empty tuple, and a function is called with it."""

    def script(api):
        calls: list = []
        data = [{"x": row["x"]} for row in rows()]
        model, args = tiny.seeded(Rewards, returns), api.args(**BATCH, **options)
        trainer = api.trainer(model, args, compute_metrics=counting(calls), eval_dataset=data)
        return trainer.evaluate(), predicted(trainer.predict(data)), calls

    theirs, _ = check_parity(script)
    called = options.get("label_names") != ["labels"] and "prediction_loss_only" not in options
    assert bool(theirs.result[-1]) is called


def test_a_loss_that_is_asked_for_in_the_batch() -> None:
    class Asked(Rewards):
        def forward(self, x, return_loss=None):
            outputs = super().forward(x)
            return outputs if return_loss else {"better": outputs["better"]}

    def script(api):
        calls: list = []
        args = api.args(remove_unused_columns=False, **BATCH)
        trainer = api.trainer(
            tiny.seeded(Asked, "dict"), args, compute_metrics=counting(calls),
            data_collator=lambda batch: {"x": torch.tensor([row["x"] for row in batch]), "return_loss": True},
        )  # fmt: skip
        return trainer.evaluate(rows()), calls

    theirs, _ = check_parity(script)
    assert len(theirs.result[-1]) == 1


class TestNoRows:
    """A set of length 0 has no loss and no metrics, and is no error; a stream that gives nothing is one."""

    EMPTY = {
        "list": list,
        "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict({"x": [], "labels": []}),
        "map": lambda: torch.utils.data.Subset(tiny.regression_rows(4), []),
    }

    @pytest.mark.parametrize("kind", EMPTY)
    def test_evaluate_and_predict(self, kind: str) -> None:
        def script(api):
            measured = []

            def count(prediction):
                measured.append(len(prediction.predictions))
                return {}

            options = {"compute_metrics": count, "eval_dataset": self.EMPTY[kind]()}
            trainer = api.trainer(tiny.regression(), api.args(**BATCH), **options)
            evaluated, predicted = trainer.evaluate(), trainer.predict(self.EMPTY[kind]())
            several = trainer.evaluate({"none": self.EMPTY[kind](), "some": tiny.regression_rows(4)})
            return evaluated, predicted.predictions, predicted.label_ids, predicted.metrics, several, measured

        theirs, _ = check_parity(script)
        assert "eval_loss" not in theirs.result[0]
        assert theirs.result[-1] == [4]

    def test_while_training(self) -> None:
        def script(api):
            schedule = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 2, **api.ours(isolate_rng=False)}
            api.fit(tiny.regression(), tiny.regression_rows(), trainer={"eval_dataset": []}, **schedule)

        check_parity(script)

    def test_is_told(self, ours) -> None:
        said = []
        forget_notices()
        trainer = ours.trainer(tiny.regression(), ours.args(**BATCH))
        with listen_to_notices(lambda kind, text: said.append(text)):
            trainer.predict([])
        assert "the prediction set is empty: nothing is measured" in said

    def test_a_metric_that_decides_is_missing(self, api) -> None:
        schedule = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 2, "metric_for_best_model": "loss"}
        with pytest.raises(ValueError if api.is_ours else KeyError) as caught:
            api.fit(tiny.regression(), tiny.regression_rows(), trainer={"eval_dataset": []}, **schedule)
        assert not api.is_ours or "the evaluation set is empty" in str(caught.value)

    def test_a_stream(self, api) -> None:
        trainer = api.trainer(answering(ANSWERS["dict"]), api.args(**BATCH))
        told = "set yielded no rows" if api.is_ours else "does not contain any data"
        for run in (trainer.evaluate, trainer.predict):
            with pytest.raises(ValueError, match=told):
                run(tiny.StreamDataset([]))


def test_preprocessed_logits() -> None:
    def script(api):
        seen = []

        def argmax(logits, labels):
            seen.append((type(logits).__name__, tuple(logits.shape), tuple(labels.shape)))
            return logits.argmax(-1)

        def metric(prediction):
            return {"same": float((prediction.predictions == prediction.label_ids).mean())}

        data = tiny.classification_rows(10)
        options = {"preprocess_logits_for_metrics": argmax, "compute_metrics": metric, "eval_dataset": data}
        trainer = api.trainer(tiny.bert(), api.args(**BATCH), **options)
        return trainer.evaluate(), predicted(trainer.predict(data)), seen

    check_parity(script)


@pytest.mark.parametrize("wanted", [["inputs"], ["loss"], ["inputs", "loss"]], ids=",".join)
def test_what_metrics_are_given(wanted: list[str]) -> None:
    def script(api):
        seen = []

        def metric(prediction):
            seen.append((prediction.inputs, prediction.losses, len(tuple(prediction))))
            return {"rows": float(len(prediction.label_ids))}

        data = tiny.classification_rows(10)
        args = api.args(include_for_metrics=wanted, **BATCH)
        return api.trainer(tiny.bert(), args, compute_metrics=metric).evaluate(data), seen

    check_parity(script)


def test_metrics_of_any_number_type() -> None:
    """numpy and torch scalars come out as plain numbers."""

    def script(api):
        def metric(prediction):
            return {"f32": np.float32(0.5), "int": np.int64(3), "tensor": torch.tensor(2.5), "eval_named": 1.0}

        trainer = api.trainer(tiny.bert(), api.args(**BATCH), compute_metrics=metric)
        metrics = trainer.evaluate(tiny.classification_rows(6))
        return metrics, {key: type(value).__name__ for key, value in metrics.items()}

    check_parity(script)


def test_loss_only() -> None:
    def script(api):
        args = api.args(prediction_loss_only=True, **BATCH)
        trainer = api.trainer(tiny.bert(), args, compute_metrics=correct)
        return trainer.evaluate(tiny.classification_rows(10))

    check_parity(script)


def test_rows_without_labels() -> None:
    def script(api):
        data = [{k: v for k, v in row.items() if k != "labels"} for row in tiny.classification_rows(10)]
        trainer = api.trainer(tiny.bert(), api.args(**BATCH))
        return predicted(trainer.predict(data)), trainer.evaluate(data)

    check_parity(script)


def test_several_labels() -> None:
    """`label_names` of two: the labels come as a tuple."""

    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x, start=None, end=None):
            first, second = self.layer(x).unbind(-1)
            if start is None:
                return {"first": first, "second": second}
            loss = (first - start).square().mean() + (second - end).square().mean()
            return {"loss": loss, "first": first, "second": second}

    def script(api):
        data = [{"x": row["x"], "start": row["labels"], "end": -row["labels"]} for row in tiny.regression_rows(10)]
        trainer = api.trainer(tiny.seeded(TwoHeads), api.args(label_names=["start", "end"], **BATCH))
        return predicted(trainer.predict(data))

    theirs, _ = check_parity(script)
    assert isinstance(theirs.result[1], tuple)


def test_dict_of_datasets() -> None:
    """The same for each set. Ours adds the mean of their losses, which transformers does not have."""

    def script(api):
        sets = {"a": tiny.classification_rows(6), "b": tiny.classification_rows(9, seed=3)}
        trainer = api.trainer(tiny.bert(), api.args(**BATCH), eval_dataset=sets, compute_metrics=correct)
        return [trainer.evaluate(), trainer.evaluate(sets), trainer.evaluate("b")], trainer.state.log_history

    theirs, ours = run_both(script)
    for metrics in ours.result[0][:2]:
        assert metrics.pop("eval_loss") == pytest.approx((metrics["eval_a_loss"] + metrics["eval_b_loss"]) / 2)
    assert_same(theirs.result[0], ours.result[0])
    assert_same(theirs.result[1], ours.result[1])
    assert {"eval_a_accuracy", "eval_b_accuracy"} <= set(theirs.result[0][0])


def test_language_model() -> None:
    def script(api):
        trainer = api.trainer(tiny.llama(), api.args(per_device_eval_batch_size=10))
        return predicted(trainer.predict(tiny.language_rows(10)))

    check_parity(script)


def test_evaluation_loss_of_a_language_model_does_not_depend_on_the_batch_size() -> None:
    """transformers takes the mean of the batches' means, so rows in batches with few labels weigh more and
    `eval_loss` moves with the batch size. Ours is the mean over all labels, whatever the batches.
    """

    def losses(name):
        def script(api):
            data = tiny.language_rows(10)
            return [
                api.trainer(tiny.llama(), api.args(per_device_eval_batch_size=size)).evaluate(data)["eval_loss"]
                for size in (10, 3, 1)
            ]

        return run_one(script, name).result

    theirs, ours = losses("transformers"), losses("ostinato")
    assert ours[0] == theirs[0], "in one batch, both are the mean over all labels"
    assert ours == pytest.approx([ours[0]] * 3, rel=1e-6)
    assert theirs != pytest.approx([theirs[0]] * 3, rel=1e-5)


def test_evaluation_leaves_the_training_mode_alone() -> None:
    def script(api):
        trainer = api.trainer(tiny.bert(), api.args(**BATCH))
        trainer.evaluate(tiny.classification_rows(6))
        return trainer.model.training

    check_parity(script)


def test_prediction_of_bare_logits() -> None:
    """transformers is wrong: of a model that returns a tensor it drops the first row of every batch when the rows have
    labels, as if the tensor were a tuple that begins with the loss. Ours takes it for the logits it is.
    """

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, labels=None):
            return self.layer(x)

    def script(api):
        trainer = api.trainer(tiny.seeded(Bare), api.args(**BATCH))
        prediction = trainer.predict(rows(8))
        return prediction.predictions, prediction.label_ids

    theirs, ours = run_both(script)
    expected = tiny.seeded(Bare)(torch.tensor([row["x"] for row in rows(8)])).detach().numpy()
    assert np.array_equal(ours.result[0], expected)
    assert len(ours.result[1]) == 8
    assert len(theirs.result[0]) == 6


def test_prediction_of_bare_logits_without_labels() -> None:
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x)

    def script(api):
        data = [{"x": row["x"]} for row in rows()]
        return predicted(api.trainer(tiny.seeded(Bare), api.args(**BATCH)).predict(data))

    check_parity(script)


# ------------------------------------------------------------------------------------ outputs of every shape, again


MORE_ANSWERS = {
    "dict in dict": lambda x, logits, loss: {"loss": loss, "logits": logits, "states": {"a": x, "b": (x, 2 * x)}},
    "list": lambda x, logits, loss: {"loss": loss, "logits": logits, "states": [x, 2 * x]},
    "whole numbers": lambda x, logits, loss: {"loss": loss, "logits": logits, "classes": logits.argmax(-1)},
    "truth values": lambda x, logits, loss: {"loss": loss, "logits": logits, "sure": logits.max(-1).values > 0},
    "half precision": lambda x, logits, loss: {"loss": loss, "logits": logits.half()},
    "brain floats": lambda x, logits, loss: {"loss": loss, "logits": logits.bfloat16()},
    "no logits by name": lambda x, logits, loss: {"loss": loss, "scores": logits},
    "tuple in tuple": lambda x, logits, loss: (loss, logits, (x, (2 * x, 3 * x))),
}


@pytest.mark.parametrize("answer", MORE_ANSWERS)
def test_more_shapes_of_the_output(answer: str) -> None:
    def script(api):
        seen = []

        def metric(prediction):
            seen.append((prediction.predictions, prediction.label_ids))
            return {}

        model = answering(MORE_ANSWERS[answer])
        trainer = api.trainer(model, api.args(**BATCH), eval_dataset=rows(), compute_metrics=metric)
        return predicted(trainer.predict(rows())), trainer.evaluate(), seen

    check_parity(script)


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_ragged_states_of_every_layer(head: str) -> None:
    """Each output of each layer is as wide as its batch: all are filled up."""

    def script(api):
        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        model = tiny.bert(head, output_hidden_states=True)
        trainer = api.trainer(model, api.args(**BATCH), data_collator=collator)
        return predicted(without_loss(trainer.predict(tiny.token_rows())))

    theirs, _ = check_parity(script)
    assert len(theirs.result[0]) == 2


def test_ragged_classes_made_of_logits() -> None:
    def script(api):
        collator = api.DataCollatorForTokenClassification(tiny.tokenizer())
        options = {
            "data_collator": collator,
            "preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1),
        }
        trainer = api.trainer(tiny.bert("TokenClassification"), api.args(**BATCH), **options)
        return predicted(without_loss(trainer.predict(tiny.token_rows())))

    theirs, _ = check_parity(script)
    assert theirs.result[0].dtype == np.int64


def test_encoder_and_decoder() -> None:
    """T5 returns what its encoder saw too, and keys and values, which its configuration calls of no interest."""

    def script(api):
        trainer = api.trainer(tiny.t5(), api.args(per_device_eval_batch_size=10))
        return predicted(trainer.predict(tiny.translation_rows(10)))

    theirs, _ = check_parity(script)
    assert [part.shape for part in theirs.result[0]] == [(10, 8, 40), (10, 8, 16)]


def test_answers_to_questions() -> None:
    """Start and end logits, start and end positions."""

    def script(api):
        ids = {"input_ids": [5, 6, 7, 8], "attention_mask": [1] * 4}
        data = [{**ids, "start_positions": i % 3, "end_positions": i % 3 + 1} for i in range(10)]
        seen = []

        def metric(prediction):
            (starts, ends), (first, last) = prediction
            seen.append((starts, ends, first, last))
            return {"exact": float(((starts.argmax(-1) == first) & (ends.argmax(-1) == last)).mean())}

        model = tiny.bert("QuestionAnswering", num_labels=2)
        trainer = api.trainer(model, api.args(**BATCH), compute_metrics=metric)
        return trainer.evaluate(data), predicted(trainer.predict(data)), seen

    check_parity(script)


def test_a_step_of_ones_own() -> None:
    """`prediction_step` returns three things, whatever the loop wants to know besides."""

    def script(api):
        class OwnStep(api.Trainer):
            def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
                loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
                return loss, (logits, logits.exp()), labels

        seen = []

        def metric(prediction):
            seen.append(prediction.predictions)
            return {}

        data = tiny.classification_rows(10)
        trainer = api.trainer(tiny.bert(), api.args(**BATCH), cls=OwnStep, compute_metrics=metric)
        return trainer.evaluate(data), predicted(trainer.predict(data)), seen

    check_parity(script)


def test_a_tuple_without_a_loss() -> None:
    """transformers is wrong: where the loss comes from `compute_loss_func`, it takes the first output for a loss and
    drops it, so that the logits are lost. Ours are the outputs, all of them.
    """

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, labels=None):
            return self.layer(x), 2 * x

    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs[0], labels)

    def script(api):
        trainer = api.trainer(tiny.seeded(Two), api.args(**BATCH), compute_loss_func=loss)
        prediction = trainer.predict(rows())
        return prediction.predictions, prediction.metrics["test_loss"]

    theirs, ours = run_both(script)
    x = torch.tensor([row["x"] for row in rows()])
    logits = tiny.seeded(Two)(x)[0].detach().numpy()
    assert np.array_equal(ours.result[0][0], logits)
    assert np.array_equal(ours.result[0][1], 2 * x.numpy())
    assert np.array_equal(theirs.result[0], 2 * x.numpy())
    assert ours.result[1] == theirs.result[1]


def test_a_batch_without_any_label() -> None:
    """transformers is wrong: the mean of no labels is not a number, and neither is then the loss of the whole
    evaluation. Ours leaves such a batch out.
    """

    def script(api):
        data = tiny.classification_rows(9)
        for row in data[4:8]:
            row["labels"] = -100
        return api.trainer(tiny.bert(), api.args(**BATCH)).evaluate(data)["eval_loss"]

    theirs, ours = run_both(script)
    rest = tiny.classification_rows(9)
    rest = rest[:4] + rest[8:]
    batch = {name: torch.tensor([row[name] for row in rest]) for name in rest[0]}
    with torch.no_grad():
        expected = tiny.bert().eval()(**batch).loss.item()
    assert np.isnan(theirs.result)
    assert ours.result == pytest.approx(expected, rel=1e-6)
