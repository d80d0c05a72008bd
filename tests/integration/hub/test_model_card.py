"""README.md: what the hub reads of a model, what people do, and what of an older card stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.apis import Api

pytest.importorskip("huggingface_hub")

from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load

ROWS = tiny.regression_rows()


def train(ours: Api, model: Any = None, rows: Any = ROWS, **arguments: Any) -> Any:
    given = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "logging_steps": 2}
    trainer = ours.trainer(
        model or tiny.regression(),
        ours.args(**{**given, **arguments}),
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=lambda prediction: {"mse": 0.25, "not_a_number": float("nan")},
    )
    trainer.train()
    return trainer


def card(ours: Api) -> ModelCard:
    return ModelCard.load(ours.output_dir / "README.md")


def test_facts_from_the_trainer(ours: Api) -> None:
    trainer = train(ours, weight_decay=0.1, gradient_accumulation_steps=2, warmup_steps=1)
    trainer.create_model_card()
    data, text = card(ours).data.to_dict(), card(ours).text
    assert data == {
        "tags": ["generated_from_trainer"],
        "metrics": ["mse"],
        "model-index": [{"name": ours.output_dir.name, "results": []}],
    }
    assert f"# {ours.output_dir.name}\n" in text
    for line in (
        "- learning_rate: 0.01",
        "- train_batch_size: 8",
        "- total_train_batch_size: 16",
        "- weight_decay: 0.1",
        "- warmup_steps: 1",
        "- training_steps: 4",
        "- Mse: 0.2500",
    ):
        assert f"\n{line}\n" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == "| Training Loss | Epoch | Step | Validation Loss | Mse |"
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [row.split(" | ")[2:] for row in rows[1:]] == [
        [str(step), f"{loss:.4f}", "0.2500 |"] for step, loss in zip((2, 4), losses, strict=True)
    ]
    assert "Pytorch" in text and "Ostinato" in text
    assert "hub" not in text and "output_dir" not in text


def test_facts_from_the_caller(ours: Api) -> None:
    train(ours).create_model_card(
        language="en",
        license="apache-2.0",
        tags=["a", "b"],
        model_name="Name",
        finetuned_from="google/thing",
        tasks=["text-classification"],
        dataset_tags=["glue", "imdb"],
        dataset=["GLUE", "IMDB"],
        dataset_args=["mrpc"],
    )
    data = card(ours).data
    assert (data.language, data.license, data.base_model) == (["en"], "apache-2.0", "google/thing")
    assert data.datasets == ["glue", "imdb"]
    assert data.tags == ["a", "b", "generated_from_trainer"]
    assert [(one.dataset_name, one.metric_type, one.metric_value) for one in data.eval_results or ()] == [
        ("GLUE", "mse", 0.25),
        ("IMDB", "mse", 0.25),
    ]
    assert "[google/thing](https://huggingface.co/google/thing), trained further on GLUE and IMDB." in card(ours).text


def test_an_older_card_keeps_what_it_says(ours: Api) -> None:
    trainer = train(ours)
    path = ours.output_dir / "README.md"
    ours.output_dir.mkdir(exist_ok=True)
    path.write_text("---\nlibrary_name: mine\ntags:\n- own\nlicense: mit\nunusual: 3\n---\n# By hand\n\nMy words.\n")
    trainer.create_model_card(tags="more", license="gpl")
    data = metadata_load(path)
    assert data is not None
    assert (data["library_name"], data["license"], data["unusual"]) == ("mine", "gpl", 3)
    assert data["tags"] == ["own", "more", "generated_from_trainer"]
    assert data["metrics"] == ["mse"]
    assert card(ours).text.strip() == "# By hand\n\nMy words."
    trainer.create_model_card()
    assert card(ours).text.strip() == "# By hand\n\nMy words."


def test_a_card_of_ours_is_written_anew_without_losing_results(ours: Api) -> None:
    trainer = train(ours)
    trainer.create_model_card(dataset_tags="glue", tasks="regression", language="en")
    trainer.create_model_card(model_name="Later")
    data = card(ours).data
    assert (data.language, data.datasets, data.model_name) == (["en"], ["glue"], "Later")
    assert [one.metric_value for one in data.eval_results or ()] == [0.25]
    assert card(ours).text.count("# Later\n") == 1


def test_an_unreadable_card_is_replaced(ours: Api, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = train(ours)
    ours.output_dir.mkdir(exist_ok=True)
    (ours.output_dir / "README.md").write_text("---\n: [\n---\ntext")
    trainer.create_model_card()
    assert "generated_from_trainer" in card(ours).data.tags
    assert "cannot be read" in capsys.readouterr().err


def test_results_are_those_of_the_weights_the_model_has(ours: Api) -> None:
    args = ours.args(
        max_steps=4, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="mse",
        greater_is_better=False,
    )  # fmt: skip
    trainer = ours.trainer(tiny.regression(), args, train_dataset=ROWS, eval_dataset=ROWS)
    trainer.compute_metrics = lambda prediction: {"mse": 0.9 if trainer.state.global_step == 4 else 0.1}
    trainer.train()
    trainer.create_model_card()
    assert "- Mse: 0.1000" in card(ours).text
    trainer.compute_metrics = lambda prediction: {"mse": 0.2}
    trainer.evaluate()
    trainer.create_model_card()
    assert "- Mse: 0.2000" in card(ours).text
    assert "| 0.9000 |" in card(ours).text


def test_models_of_transformers_and_adapters(ours: Api) -> None:
    pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    model = tiny.bert()
    rows = tiny.classification_rows()
    train(ours, model, rows).create_model_card()
    assert card(ours).data.library_name == "transformers"
    assert card(ours).data.base_model is None
    (ours.output_dir / "README.md").unlink()
    model.name_or_path = "google/bert"
    adapter = peft.get_peft_model(model, peft.LoraConfig(target_modules=["query"]))
    train(ours, adapter, rows).create_model_card()
    data = card(ours).data
    assert (data.library_name, data.base_model) == ("peft", "google/bert")
    assert data.tags == ["base_model:adapter:google/bert", "lora", "transformers", "generated_from_trainer"]
    assert "- PEFT " in card(ours).text


def test_the_name_of_the_dataset(ours: Api) -> None:
    datasets = pytest.importorskip("datasets")
    info = datasets.DatasetInfo(builder_name="glue", config_name="mrpc")
    named = datasets.Dataset.from_list(tiny.classification_rows(), info=info)
    train(ours, tiny.bert(), named).create_model_card()
    data = card(ours).data
    assert data.datasets == ["glue"]
    (result,) = data.eval_results or ()
    assert (result.task_type, result.dataset_config) == ("text-classification", "mrpc")


def test_a_local_directory_is_no_base_model(ours: Api, tmp_path: Path) -> None:
    model = tiny.bert()
    model.config._name_or_path = str(tmp_path)
    train(ours, model, tiny.classification_rows()).create_model_card()
    assert card(ours).data.base_model is None
    assert str(tmp_path) not in (ours.output_dir / "README.md").read_text().replace(ours.output_dir.name, "")
