"""Sentence embedding: its sample, losses computed by hand, retrieval over the whole set, directories, wrong rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr
from torch.nn.functional import cosine_similarity, cross_entropy, mse_loss

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.pooling import Pooling
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random
from ostinato.tasks.text_retrieval import Candidates, measure_retrieval
from ostinato.tasks.tokenizers import BERT, train_tokenizer
from ostinato.tasks.towers import CosineToScore, InBatchNegatives
from tests.support.apis import guest
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, save_bert, write_rows

SHORT = [
    *("--max_seq_length", "32", "--num_train_epochs", "2", "--per_device_train_batch_size", "8"),
    *("--logging_steps", "1", "--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
]


def scored(count: int, seed: int = 0) -> list[dict[str, Any]]:
    numbers = create_random(seed)
    rows = []
    for _ in range(count):
        one, other = (list(SUBJECTS)[numbers.randrange(4)] for _ in range(2))
        texts = [build_sentence(subject, numbers) for subject in (one, other)]
        score = 4.0 * (one == other) + numbers.randrange(3) / 2
        rows.append({"sentence1": texts[0], "sentence2": texts[1], "score": score})
    return rows


def pairs(count: int, seed: int = 0, *, hard: bool = False) -> list[dict[str, Any]]:
    """A question about one of many things, the sentence that answers it, and one that does not."""
    numbers = create_random(seed)
    rows = []
    for _ in range(count):
        subject, other = numbers.sample(list(SUBJECTS), 2)
        word = SUBJECTS[subject][numbers.randrange(8)]
        row = {"anchor": f"who likes the {word} ?", "positive": f"{word} is what they like in {subject} ."}
        rows.append({**row, **({"negative": f"nobody likes {SUBJECTS[other][0]} ."} if hard else {})})
    return rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small BERT and its tokenizer."""
    rows = [*scored(100), *pairs(100, hard=True)]
    texts = (text for row in rows for text in row.values() if isinstance(text, str))
    tokenizer = train_tokenizer(texts, 400, BERT)
    return save_bert(tokenizer, shelf / "model")


# ---- the sample ---------------------------------------------------------------------------------------------------


def test_the_sample_is_learned() -> None:
    finished = run("sentence-embedding", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["eval_spearman"] > 0.7 > finished.sample.baseline + 0.3
    predicted = read_rows(Path("runs/sentence-embedding/predictions.jsonl"))
    told = spearmanr([row["cosine"] for row in predicted], [row["score"] for row in predicted])[0]
    assert finished.metrics["predict_spearman"] == pytest.approx(told, abs=2e-3)  # cosines are rounded in the file


# ---- losses -------------------------------------------------------------------------------------------------------

COLUMNS = ("sentence1", "sentence2", "anchor", "positive", "negative")


def batched(tokenizer: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = [name for name in COLUMNS if name in rows[0]]
    flat = tokenizer([row[name] for row in rows for name in columns], padding=True, return_tensors="pt")
    return {name: value.view(len(rows), len(columns), -1) for name, value in flat.items()}


def vectors_by_hand(network: Any, batch: dict[str, Any], pooling: str) -> torch.Tensor:
    rows, towers, _ = batch["input_ids"].shape
    hidden = network(**{name: value.flatten(0, 1) for name, value in batch.items()}).last_hidden_state
    mask = batch["attention_mask"].flatten(0, 1)[..., None]
    if pooling == "mean":
        pooled = (hidden * mask).sum(1) / mask.sum(1)
    elif pooling == "max":
        pooled = hidden.masked_fill(mask == 0, -1e9).max(1).values
    else:
        pooled = hidden[:, 0]
    return pooled.view(rows, towers, -1)


def loss_by_hand(vectors: torch.Tensor, rows: list[dict[str, Any]], loss: str) -> torch.Tensor:
    """As one would write it down, a pair of texts at a time where texts may be equal."""
    if loss == "cosine":
        cosines = cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)
        return mse_loss(cosines, torch.tensor([row["score"] / 5 for row in rows]))
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    scores = unit[:, 0] @ torch.cat([unit[:, tower] for tower in range(1, vectors.shape[1])]).T * 20
    texts = [row[name] for name in ("positive", "negative") if name in rows[0] for row in rows]
    wrong = torch.zeros_like(scores)
    for i, row in enumerate(rows):
        for j, text in enumerate(texts):
            same_question = j < len(rows) and rows[j]["anchor"] == row["anchor"]
            if j != i and (text == row["positive"] or same_question):
                wrong[i, j] = -torch.inf
    right = torch.arange(len(rows))
    forth = cross_entropy(scores + wrong, right)
    back = cross_entropy((scores + wrong)[:, : len(rows)].T, right)
    return (forth + back) / 2 if loss == "symmetric" else forth


def plain_program(model: str, rows: list[dict[str, Any]], *, loss: str, pooling: str) -> Any:
    """The same with transformers' Trainer and a loss written down by hand."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    class ByHand(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            texts = inputs.pop("rows")
            return loss_by_hand(vectors_by_hand(model, inputs, pooling), texts, loss)

    with guest("transformers"):
        trainer = ByHand(
            model=transformers.AutoModel.from_pretrained(model),
            args=plain_arguments(1e-3, num_train_epochs=2, remove_unused_columns=False),
            train_dataset=rows,  # type: ignore[arg-type]
            data_collator=lambda some: {**batched(tokenizer, some), "rows": some},
        )
        trainer.train()
        return trainer


VARIANTS = {
    "scores": ("cosine", "mean", []),
    "scores, the first token": ("cosine", "cls", ["--pooling", "cls"]),
    "scores, the largest values": ("cosine", "max", ["--pooling", "max"]),
    "in-batch negatives": ("in-batch", "mean", []),
    "in-batch negatives both ways": ("symmetric", "mean", ["--symmetric"]),
    "hard negatives": ("hard", "mean", []),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_those_of_a_plain_program(model: str, variant: str) -> None:
    loss, pooling, more = VARIANTS[variant]
    rows = scored(24) if loss == "cosine" else pairs(24, hard=loss == "hard")
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), rows), "--do_train"]
    ours = run("sentence-embedding", [*words, *more, *SHORT]).trainer
    theirs = plain_program(model, rows, loss=loss, pooling=pooling)
    assert_same_run(ours, theirs)


def test_equal_texts_are_no_negatives_of_one_another() -> None:
    vectors = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    texts = torch.tensor([[1, 2], [3, 2], [1, 5], [6, 1]])  # 0 and 1 share an answer, 0 and 2 a question; 3 answers it
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    scores = 20 * unit[:, 0] @ unit[:, 1].T
    counted = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    expected = -(scores - scores.masked_fill(~counted, -torch.inf).logsumexp(1, keepdim=True)).diagonal().mean()
    torch.testing.assert_close(InBatchNegatives().compute_loss(vectors, texts), expected)
    back = -(scores - scores.masked_fill(~counted, -torch.inf).logsumexp(0, keepdim=True)).diagonal().mean()
    torch.testing.assert_close(InBatchNegatives(symmetric=True).compute_loss(vectors, texts), (expected + back) / 2)
    InBatchNegatives().compute_loss(vectors, texts).backward()
    assert vectors.grad is not None and vectors.grad.isfinite().all()


def test_losses_are_computed_in_float32() -> None:
    vectors = torch.randn(8, 2, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    texts = torch.arange(16).view(8, 2)
    for comparison, labels in ((CosineToScore(), torch.rand(8, dtype=torch.float64)), (InBatchNegatives(), texts)):
        torch.testing.assert_close(
            comparison.compute_loss(vectors, labels), comparison.compute_loss(vectors.float(), labels)
        )


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_padding_on_either_side_does_not_matter(mode: str) -> None:
    tokens, padding = torch.randn(2, 3, 4), torch.full((2, 2, 4), 99.0)
    right = Pooling(mode)(torch.cat([tokens, padding], 1), torch.tensor([[1, 1, 1, 0, 0]] * 2))
    left = Pooling(mode)(torch.cat([padding, tokens], 1), torch.tensor([[0, 0, 1, 1, 1]] * 2))
    torch.testing.assert_close(right, left)
    torch.testing.assert_close(Pooling(mode, normalize=True)(tokens, torch.ones(2, 3)).norm(dim=-1), torch.ones(2))


# ---- retrieval ----------------------------------------------------------------------------------------------------


def test_retrieval_counts_every_text_of_the_set_once() -> None:
    draw = np.random.default_rng(0)
    texts = draw.integers(0, 12, size=(40, 3)) + np.array([0, 100, 100])  # questions and answers that come again
    table = draw.normal(size=(200, 8)).astype(np.float32)
    vectors = table[texts]
    ranks = []
    for question, answer, _ in texts:
        right = {other for first, other, _ in texts if first == question} - {answer}
        scores = {
            name: float(table[name] @ table[question] / np.linalg.norm(table[name]))
            for name in set(texts[:, 1:].flat) - right
        }
        ranks.append(1 + sum(score > scores[answer] for score in scores.values()))
    expected = {
        "mrr": np.mean(1 / np.array(ranks)),
        **{f"recall_at_{k}": np.mean(np.array(ranks) <= k) for k in (1, 5, 10)},
    }
    assert measure_retrieval(vectors, texts) == pytest.approx(expected)
    assert [int(rank) for found in Candidates(vectors, texts).search() for rank in found.ranks] == ranks


def test_retrieved_pairs_are_written_as_predictions(model: str) -> None:
    train, test = pairs(200), list({row["anchor"]: row for row in pairs(60, 9)}.values())
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train), *SHORT]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), test), "--test_file", "dev.jsonl"]
    words += ["--do_train", "--do_eval", "--do_predict", "--learning_rate", "1e-2", "--top_k", "3"]
    finished = run("sentence-embedding", [*words, "--num_train_epochs", "3"])
    assert len(test) > 20
    assert finished.metrics["eval_recall_at_1"] > 0.6 > 5 / len(test)
    predicted = read_rows(Path("out/predictions.jsonl"))
    assert np.mean([1 / row["rank"] for row in predicted]) == pytest.approx(finished.metrics["predict_mrr"])
    for row, given in zip(predicted, test, strict=True):
        assert (row["anchor"], row["positive"]) == (given["anchor"], given["positive"])
        assert len(row["found"]) == 3
        assert (row["found"][0]["text"] == row["positive"]) == (row["rank"] == 1)


def test_negatives_come_from_the_micro_batch_with_a_notice(model: str, caplog: pytest.LogCaptureFixture) -> None:
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), pairs(16)), *SHORT]
    words += ["--do_train", "--max_steps", "1", "--gradient_accumulation_steps", "2"]
    whole = [*words, "--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "1"]
    with caplog.at_level("INFO"):
        one = run("sentence-embedding", words).trainer.state.log_history[0]["loss"]
    assert "micro-batch of 8: gradient accumulation adds none" in caplog.text
    assert run("sentence-embedding", whole).trainer.state.log_history[0]["loss"] > one + 0.3
    with pytest.raises(ConfigError, match="there are none"):
        run("sentence-embedding", [*words, "--per_device_train_batch_size", "1"])


# ---- directories --------------------------------------------------------------------------------------------------


def test_a_trained_directory_loads_as_encoder_with_pooling(model: str) -> None:
    file = write_rows(Path("rows.jsonl"), scored(24))
    words = ["--train_file", file, "--validation_file", file, "--do_eval", *SHORT]
    trained = run(
        "sentence-embedding", [*words, "--model_name_or_path", model, "--do_train", "--pooling", "max", "--normalize"]
    )
    encoder = transformers.AutoModel.from_pretrained("out")
    for name, weight in trained.trainer.model.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], weight)
    modules = json.loads(Path("out/modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Normalize"]
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Normalize"]
    assert json.loads(Path("out/1_Pooling/config.json").read_text()) == {
        "word_embedding_dimension": 16,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": True,
    }
    assert json.loads(Path("out/sentence_bert_config.json").read_text())["max_seq_length"] == 32
    again = run("sentence-embedding", [*words, "--model_name_or_path", "out", "--output_dir", "again"])
    assert again.trainer.pooling == Pooling("max", normalize=True)  # type: ignore[attr-defined]
    assert again.metrics["eval_loss"] == trained.metrics["eval_loss"]
    assert again.metrics["eval_spearman"] == trained.metrics["eval_spearman"]
    checkpoint = run("sentence-embedding", [*words, "--model_name_or_path", "out/checkpoint-6", "--pooling", "mean"])
    assert checkpoint.trainer.pooling == Pooling("mean", normalize=True)  # type: ignore[attr-defined]


DIRECTORIES = {
    "as it is written today": ({"embedding_dimension": 16, "pooling_mode": "cls"}, [], Pooling("cls")),
    "normalised": (
        {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        ["Normalize"],
        Pooling("mean", True),
    ),
    "a pooling that is not here": ({"pooling_mode": "lasttoken"}, [], "names the pooling lasttoken"),
    "two poolings": ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, [], "names the pooling"),
    "a further layer": ({"pooling_mode": "cls"}, ["Dense"], "names a module Dense"),
}


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_directories_of_sentence_transformers(kind: str, tmp_path: Path) -> None:
    content, further, expected = DIRECTORIES[kind]
    paths = {"Transformer": "", "Pooling": "1_Pooling", **{name: f"2_{name}" for name in further}}
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(content))
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in paths.items()]
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    def find(name: str) -> Path | None:
        return tmp_path / name if (tmp_path / name).is_file() else None

    if isinstance(expected, Pooling):
        assert Pooling.load(find) == expected
    else:
        with pytest.raises(ConfigError, match=expected):
            Pooling.load(find)
    shutil.rmtree(tmp_path / "1_Pooling")
    (tmp_path / "modules.json").unlink()
    assert Pooling.load(find) is None


# ---- rows ---------------------------------------------------------------------------------------------------------


def test_scores_are_scaled_with_a_notice(model: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": row["sentence1"], "other": row["sentence2"], "points": i % 4} for i, row in enumerate(scored(24))]
    words = ["--model_name_or_path", model, "--validation_file", write_rows(Path("rows.jsonl"), rows), "--do_eval"]
    words += ["--text_column_names", "text, other", "--score_column_name", "points", *SHORT]
    with caplog.at_level("INFO"):
        labels = run("sentence-embedding", words).trainer.eval_dataset["labels"]
    assert list(labels) == [i % 4 / 3 for i in range(24)]
    assert "fits their cosine to points / 3 (the largest in rows.jsonl)" in caplog.text
    labels = run("sentence-embedding", [*words, "--score_scale", "10"]).trainer.eval_dataset["labels"]
    assert list(labels) == [i % 4 / 10 for i in range(24)]


def test_rows_without_scores_are_predicted(model: str) -> None:
    bare = [{name: row[name] for name in ("sentence1", "sentence2")} for row in scored(10)]
    words = ["--model_name_or_path", model, "--test_file", write_rows(Path("test.jsonl"), bare), "--do_predict"]
    run("sentence-embedding", [*words, "--loss", "cosine", *SHORT])
    predicted = read_rows(Path("out/predictions.jsonl"))
    assert all(-1 <= row.pop("cosine") <= 1 for row in predicted)
    assert predicted == bare


GOOD = scored(12)
WRONG = {
    "no score": (
        [*GOOD, {**GOOD[0], "score": None}],
        [],
        DataError,
        "rows.jsonl, row 13, column 'score'.*not a number",
    ),
    "a word for a score": ([{**GOOD[0], "score": "high"}], [], DataError, "row 1, column 'score'.*'high'"),
    "no text": ([*GOOD, {**GOOD[0], "sentence2": "  "}], [], DataError, "row 13, column 'sentence2'.*no text"),
    "no column": ([{"sentence1": "a", "sentence": "b"}], [], DataError, "no column 'sentence2'.*--text_column_names"),
    "no column of scores": (
        [{"sentence1": "a", "sentence2": "b", "scores": 1.0}],
        ["--loss", "cosine"],
        DataError,
        "no column 'score'.*--score_column_name; did you mean 'scores'",
    ),
    "four columns": (GOOD, ["--text_column_names", "a,b,c,d"], ConfigError, "two columns or three"),
    "a negative with scores": (
        [{**row, "negative": "x"} for row in GOOD],
        ["--loss", "cosine", "--text_column_names", "sentence1,sentence2,negative"],
        ConfigError,
        "a score compares two texts",
    ),
    "an encoder with a decoder": (GOOD, ["--config_name", "t5"], ConfigError, "t5 is an encoder-decoder model"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, more, error, message = WRONG[mistake]
    transformers.T5Config(d_model=8).save_pretrained("t5")
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train"]
    with pytest.raises(error, match=f"(?s){message}"):
        run("sentence-embedding", [*words, *more, *SHORT])
