"""`trainer.explain()` for every kind of model and data, and that it leaves no trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.notices import forget_notices
from ostinato.core.random import RandomState
from tests.support import tiny
from tests.support.apis import load_library
from tests.support.explain_cases import trainer

load_library("transformers")


class CountingCollator:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rows: list[Any]) -> Any:
        self.calls += 1
        return ostinato.default_data_collator(rows)


# ---- no trace -------------------------------------------------------------------------------------------------------


def fingerprint(built: Any) -> dict[str, Any]:
    model = built.model
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "attributes": {name: id(value) for name, value in vars(built).items()},
        "gradients": [parameter.grad for parameter in model.parameters()],
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    weights, others = before.pop("weights"), after.pop("weights")
    assert all(torch.equal(value, others[name]) for name, value in weights.items())
    assert before == after


@pytest.mark.parametrize("mode", [True, False])
def test_state_is_restored(tmp_path: Path, mode: bool) -> None:
    collator = CountingCollator()
    built = trainer(
        tmp_path / "out",
        tiny.seeded(tiny.NormedRegression),
        tiny.regression_rows(),
        eval_dataset=tiny.regression_rows(16, seed=3),
        data_collator=collator,
        compute_metrics=lambda prediction: {"x": 1.0},
    )
    built.model.train(mode)
    before, streams = fingerprint(built), RandomState.capture()
    built.explain()
    assert streams.is_current()
    assert_same(before, fingerprint(built))
    assert collator.calls == 0
    assert not (tmp_path / "out").exists()


def test_a_changed_model_config_is_restored(tmp_path: Path) -> None:
    model = tiny.bert()  # sets problem_type when it sees labels
    trainer(tmp_path, model, tiny.classification_rows()).explain()
    assert model.config.problem_type is None


def test_notices_are_shown_again_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forget_notices()
    logger, heard = logging.getLogger("ostinato"), []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        built = trainer(tmp_path, tiny.regression(), [{**row, "extra": 1} for row in tiny.regression_rows()])
        built.explain()
        assert heard == []
        next(iter(built.get_train_dataloader()))
        assert any("left out extra" in line for line in heard)
    finally:
        logger.removeHandler(handler)


# ---- data sets of every kind ----------------------------------------------------------------------------------------


def test_a_stream_is_not_advanced(tmp_path: Path) -> None:
    rows = tiny.StreamDataset(tiny.regression_rows())
    journey = trainer(tmp_path, tiny.regression(), rows, arguments={"max_steps": 3}).explain()
    assert journey.data.rows is None
    assert [column.name for column in journey.data.columns] == ["x", "labels"]
    assert journey.batch.rows == 8
    assert len(list(rows)) == 24


class OneShot(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __init__(self, rows: Iterator[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return self.rows


def test_a_generator_is_not_read(tmp_path: Path) -> None:
    rows = OneShot(row for row in tiny.regression_rows())
    journey = trainer(tmp_path, tiny.regression(), rows, arguments={"max_steps": 3}).explain()
    assert journey.batch is None
    assert journey.findings == ()
    assert "read only once" in journey.data.note
    assert len(list(rows.rows)) == 24


def test_evaluation_set_alone(tmp_path: Path) -> None:
    journey = trainer(tmp_path, tiny.regression(), None, eval_dataset=tiny.regression_rows(10)).explain()
    assert journey.data.name == "evaluation set"
    assert journey.loss.mean_over == "8 labels, one per row"
    assert journey.evaluation.rows == 10


def test_evaluation_set_without_labels(tmp_path: Path) -> None:
    rows = [{"x": row["x"]} for row in tiny.regression_rows(10)]
    journey = trainer(tmp_path, tiny.regression(), None, eval_dataset=rows).explain()
    assert journey.loss is None
    assert [value.name for value in journey.evaluation.values] == ["predictions"]
    assert journey.findings == ()


def test_the_first_of_several_evaluation_sets(tmp_path: Path) -> None:
    sets = {"near": tiny.regression_rows(10), "far": tiny.regression_rows(12)}
    journey = trainer(tmp_path, tiny.regression(), tiny.regression_rows(), eval_dataset=sets).explain()
    assert journey.evaluation.data == "evaluation set 'near'"
    assert journey.evaluation.rows == 10
    built = trainer(tmp_path, tiny.regression(), tiny.regression_rows(), eval_dataset=sets)
    assert built.explain("far").data.name == "evaluation set 'far'"
    with pytest.raises(ValueError, match=r"did you mean .far"):
        built.explain("fra")


def test_a_given_data_set(tmp_path: Path) -> None:
    journey = trainer(tmp_path, tiny.regression(), tiny.regression_rows()).explain(tiny.regression_rows(6))
    assert (journey.data.name, journey.data.rows, journey.batch.rows) == ("data set", 6, 6)


def test_nothing_to_explain(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train_dataset"):
        trainer(tmp_path, tiny.regression(), None).explain()


def test_a_table_of_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{**row, "title": "text"} for row in tiny.regression_rows()])
    journey = trainer(tmp_path, tiny.regression(), rows).explain()
    kept = {column.name: (column.kind, column.kept) for column in journey.data.columns}
    assert kept == {"x": ("list of 4 float", True), "labels": ("float", True), "title": ("text", False)}


def test_a_table_with_a_transform(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"x": row["x"], "y": row["labels"]} for row in tiny.regression_rows()])
    rows.set_transform(lambda batch: {"x": batch["x"], "labels": batch["y"]})
    journey = trainer(tmp_path, tiny.regression(), rows, arguments={"remove_unused_columns": False}).explain()
    assert {one.name: one.kind for one in journey.data.columns}["y"] == "read by its transform"
    assert journey.batch.left_out == ()
    (finding,) = trainer(tmp_path, tiny.regression(), rows).explain().findings
    assert "remove_unused_columns=False" in finding.why


def test_a_user_dataloader(tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(
        tiny.regression_rows(), batch_size=3, collate_fn=ostinato.default_data_collator, num_workers=2
    )
    journey = trainer(tmp_path, tiny.regression(), loader).explain()
    assert journey.batch.rows == 3
    assert loader.num_workers == 2


def test_a_mixture(tmp_path: Path) -> None:
    rows = {"one": (tiny.regression_rows(8), 0.5), "two": (tiny.regression_rows(8, seed=2), 0.5)}
    journey = trainer(tmp_path, tiny.regression(), rows).explain()
    assert journey.data.kind == "a mixture of one, two"
    assert journey.findings == ()


def test_workers_are_not_started(tmp_path: Path) -> None:
    arguments = {"dataloader_num_workers": 2}
    journey = trainer(tmp_path, tiny.regression(), tiny.MapDataset(tiny.regression_rows()), arguments=arguments)
    assert journey.explain().batch.rows == 8  # the police would find their threads


def test_a_batch_cut_by_length(tmp_path: Path) -> None:
    rows = tiny.classification_rows(16, length=4) + tiny.classification_rows(16, length=30)
    built = trainer(
        tmp_path,
        tiny.bert(),
        rows,
        processing_class=tiny.tokenizer(),
        arguments={"split_by_length": True, "per_device_train_batch_size": 16},
    )
    assert built.explain().batch.micro_batches == 2


# ---- models and losses of every kind --------------------------------------------------------------------------------


def test_a_tuple(tmp_path: Path) -> None:
    journey = trainer(tmp_path, tiny.regression(output="tuple"), tiny.regression_rows()).explain()
    assert [(value.name, value.note) for value in journey.outputs.values] == [
        ("[0]", "the loss"),
        ("[1]", "predictions"),
    ]
    assert journey.loss.where == "outputs[0]"


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def classes() -> list[dict[str, Any]]:
    return [{"x": row["x"], "labels": i % 3} for i, row in enumerate(tiny.regression_rows())]


def my_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels)


def test_a_user_loss_function(tmp_path: Path) -> None:
    journey = trainer(
        tmp_path, Bare(), classes(), compute_loss_func=my_loss, arguments={"label_names": ["labels"]}
    ).explain()
    assert journey.loss.where == "my_loss(outputs, labels)"
    assert journey.call.withheld == ("labels",)
    assert journey.outputs.values[0].note == "the predictions"
    assert journey.metrics.names == ("accuracy", "f1")
    assert journey.findings == ()


def test_a_bare_tensor_without_a_loss(tmp_path: Path) -> None:
    (finding,) = trainer(tmp_path, Bare(), classes()).explain().findings
    assert finding.station == "loss"
    assert "compute_loss_func" in finding.fix


class Own(ostinato.Trainer):
    calls = 0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        self.calls += 1
        outputs = model(**inputs)
        return (2 * outputs["loss"], outputs) if return_outputs else 2 * outputs["loss"]


def test_an_overridden_compute_loss(tmp_path: Path) -> None:
    args = ostinato.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, disable_tqdm=True)
    built = Own(tiny.regression(), args, train_dataset=tiny.regression_rows())
    journey = built.explain()
    assert journey.loss.where == "the result of compute_loss"
    assert journey.loss.source == "Own.compute_loss"
    assert built.calls == 0


def test_smoothed_labels(tmp_path: Path) -> None:
    arguments = {"label_smoothing_factor": 0.1}
    journey = trainer(tmp_path, tiny.bert(), tiny.classification_rows(), arguments=arguments).explain()
    assert journey.loss.where == "smoothed labels (label_smoothing_factor=0.1)"
    assert journey.call.withheld == ("labels",)


def test_model_init(tmp_path: Path) -> None:
    args = ostinato.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, disable_tqdm=True)
    built = ostinato.Trainer(args=args, model_init=lambda: tiny.regression(), train_dataset=tiny.regression_rows())
    assert built.explain().loss is not None


def test_adapters(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny.bert(), peft.LoraConfig(target_modules=["query"], task_type="SEQ_CLS"))
    journey = trainer(tmp_path, model, tiny.classification_rows()).explain()
    assert journey.model == "BertForSequenceClassification"
    assert journey.findings == ()
    assert set(journey.call.given) == {"input_ids", "attention_mask", "labels", "num_items_in_batch"}


def test_metrics_by_name_and_auto(tmp_path: Path) -> None:
    def explain_with(**asked: Any) -> Any:
        return trainer(tmp_path, tiny.bert(), tiny.classification_rows(), **asked).explain()

    assert explain_with(metrics=["accuracy"]).metrics.in_use == ("accuracy",)
    assert "batch by batch" in explain_with(metrics=["accuracy"]).evaluation.called
    assert explain_with(compute_metrics="auto").metrics.how == ""


def test_what_is_included_for_metrics(tmp_path: Path) -> None:
    arguments = {"include_for_metrics": ["inputs", "loss"]}
    built = trainer(tmp_path, tiny.bert(), tiny.classification_rows(), arguments=arguments)
    assert [value.name for value in built.explain().evaluation.values] == [
        "predictions",
        "label_ids",
        "inputs",
        "losses",
    ]


def test_batch_by_batch_whole_batches_are_included(tmp_path: Path) -> None:
    built = trainer(
        tmp_path, tiny.bert(), tiny.classification_rows(), compute_metrics=lambda prediction, compute_result: {},
        arguments={"include_for_metrics": ["inputs"], "batch_eval_metrics": True},
    )  # fmt: skip
    names = [value.name for value in built.explain().evaluation.values]
    assert names == ["predictions", "label_ids", "inputs['input_ids']", "inputs['attention_mask']", "inputs['labels']"]


class Rewards(nn.Module):
    """A loss without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, return_loss: bool = True) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": logits.mean(), "logits": logits}


@pytest.mark.parametrize(
    ("asked", "called"),
    [
        ({"compute_metrics": lambda prediction: {}}, "receives numpy arrays of all"),
        ({"metrics": ["accuracy"]}, "never called, since the batches"),
        ({"compute_metrics": "auto"}, "never called, since the batches"),
    ],
    ids=["function", "name", "auto"],
)
def test_a_loss_that_needs_no_labels(tmp_path: Path, asked: dict[str, Any], called: str) -> None:
    rows = [{"x": row["x"]} for row in tiny.regression_rows()]
    journey = trainer(tmp_path, tiny.seeded(Rewards), rows, **asked).explain()
    assert called in journey.evaluation.called
    assert journey.findings == ()


def first_class(logits: Any, labels: Any) -> Any:
    return logits.argmax(-1)


def test_preprocessed_logits(tmp_path: Path) -> None:
    built = trainer(tmp_path, tiny.bert(), tiny.classification_rows(), preprocess_logits_for_metrics=first_class)
    predictions = built.explain().evaluation.values[0]
    assert (predictions.shape, predictions.dtype, predictions.note) == ((8,), "int64", "returned by first_class")


def test_metrics_that_are_never_computed(tmp_path: Path) -> None:
    rows = [{"x": row["x"], "target": row["labels"]} for row in tiny.regression_rows()]
    built = trainer(
        tmp_path,
        tiny.regression(),
        tiny.regression_rows(),
        eval_dataset=rows,
        compute_metrics=lambda prediction: {"x": 1.0},
    )
    (finding,) = built.explain().findings
    assert "compute_metrics would never be called" in finding.what


def test_a_user_exception_is_reported_with_its_origin(tmp_path: Path) -> None:
    def collate(rows: list[Any]) -> Any:
        raise KeyError("pixels")

    (finding,) = trainer(tmp_path, tiny.regression(), tiny.regression_rows(), data_collator=collate).explain().findings
    assert finding.station == "batch"
    assert finding.what == "KeyError: 'pixels'"
    assert "raised in collate (test_explain_batch.py, line" in finding.why


# ---- forms ----------------------------------------------------------------------------------------------------------


def test_as_data(tmp_path: Path) -> None:
    journey = trainer(tmp_path, tiny.regression(), tiny.regression_rows()).explain()
    facts = json.loads(journey.to_json())
    assert facts == journey.to_dict()
    assert facts["batch"]["values"][0] == {"name": "x", "shape": [8, 4], "dtype": "float32", "note": ""}
    assert repr(journey) == str(journey)


def test_a_loss_that_is_no_number_can_be_written_as_json(tmp_path: Path) -> None:
    rows = [{**row, "labels": float("nan")} for row in tiny.regression_rows()]
    journey = trainer(tmp_path, tiny.regression(), rows).explain()
    assert [finding.station for finding in journey.findings] == ["loss"]
    assert json.loads(journey.to_json())["loss"]["value"] == "nan"


def test_generated_texts(tmp_path: Path) -> None:
    args = ostinato.Seq2SeqTrainingArguments(
        str(tmp_path),
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        predict_with_generate=True,
        generation_max_length=5,
    )
    built = ostinato.Seq2SeqTrainer(
        tiny.t5(), args, train_dataset=tiny.translation_rows(), processing_class=tiny.tokenizer()
    )
    journey = built.explain()
    predictions = journey.evaluation.values[0]
    assert predictions.dtype == "int64"
    assert predictions.shape is not None and len(predictions.shape) == 2
    assert journey.metrics.names == ("rouge",)
