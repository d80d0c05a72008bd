"""Causal language modeling: its sample, the same losses as a plain program of transformers, packing, wrong input."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import accuracy_score

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.language_models import perplexity
from ostinato.tasks.text_blocks import RowCutter, RowJoiner, count_positions
from ostinato.tasks.tokenizers import GPT
from tests.support.language_runs import SHORT, blocks_of, lines, make_model, plain_run, write_text
from tests.support.task_runs import assert_same_run, measured, read_rows, write_rows

FEW = ["--max_steps", "4", *SHORT]


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return make_model(shelf / "model", "llama", GPT, "LlamaForCausalLM")


@pytest.fixture(scope="module")
def gpt2(shelf: Path) -> str:
    return make_model(shelf / "gpt2", "gpt2", GPT, "GPT2LMHeadModel")


def test_the_sample_is_learned() -> None:
    finished = run("language-modeling", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["perplexity"] < finished.sample.baseline / 4, finished.metrics
    assert finished.metrics["perplexity"] == math.exp(finished.metrics["eval_loss"])
    home = Path("runs/clm")
    predicted = read_rows(home / "predictions.jsonl")
    assert len(predicted) == finished.metrics["predict_samples"]
    tokens = sum(block["tokens"] for block in predicted)
    assert tokens == len(predicted) * 63
    right = sum(block["right"] for block in predicted) / tokens
    assert right == pytest.approx(finished.metrics["predict_accuracy"])
    mean = sum(block["loss"] * block["tokens"] for block in predicted) / tokens
    assert mean == pytest.approx(finished.metrics["predict_loss"], rel=1e-5)
    text = "".join(block["text"] for block in predicted)
    assert (home / "data/test.txt").read_text(encoding="utf-8").startswith(text)
    results = json.loads((home / "all_results.json").read_text())
    assert results["perplexity"] == finished.metrics["perplexity"]


def next_token_accuracy(output: Any) -> dict[str, float]:
    return {"accuracy": accuracy_score(output.label_ids[:, 1:].ravel(), output.predictions[:, :-1].ravel())}


def theirs(model: str, train: list[str], dev: list[str], *, new: bool = False, **arguments: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    train_blocks, dev_blocks = (
        [{**block, "labels": list(block["input_ids"])} for block in blocks_of(tokenizer, texts, 32)]
        for texts in (train, dev)
    )
    kind = transformers.AutoModelForCausalLM

    def load() -> Any:
        config = transformers.AutoConfig.from_pretrained(model)
        return kind.from_config(config) if new else kind.from_pretrained(model)

    collator = transformers.default_data_collator
    return plain_run(load, train_blocks, dev_blocks, collator=collator, metric=next_token_accuracy, **arguments)


@pytest.mark.parametrize("source", ["files", "a share of one file", "rows", "a new model, evaluated on its way"])
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, source: str) -> None:
    train, dev = lines(1030, 1), lines(60, 2)
    new = source.startswith("a new model")
    words, arguments = ["--do_train", "--do_eval", "--block_size", "32", *FEW], {"max_steps": 4}
    if source == "a share of one file":
        words += ["--train_file", write_text(Path("all.txt"), [*dev, *train]), "--validation_split_percentage", "5"]
        both, kept = [*dev, *train], round(len([*dev, *train]) * 0.05)
        train, dev = both[kept:], both[:kept]
    elif source == "rows":
        for name, texts in (("train", train), ("validation", dev)):
            rows = [{"number": place, "body": text, "title": "-"} for place, text in enumerate(texts)]
            words += [f"--{name}_file", write_rows(Path(f"{name}.jsonl"), rows)]
        words += ["--text_column_name", "body"]
    else:
        words += ["--train_file", write_text(Path("train.txt"), train)]
        words += ["--validation_file", write_text(Path("dev.txt"), dev)]
    if new:
        words += ["--config_name", model, "--tokenizer_name", model, "--eval_strategy", "steps", "--eval_steps", "2"]
        words += ["--isolate_rng", "false"]  # evaluation draws from training's random numbers, as in transformers
        arguments |= {"eval_strategy": "steps", "eval_steps": 2}
    else:
        words += ["--model_name_or_path", model]
    finished = run("clm", words)
    other, metrics = theirs(model, train, dev, new=new, **arguments)
    assert len(finished.trainer.train_dataset) == len(other.train_dataset)
    assert_same_run(finished.trainer, other)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == expected
    assert finished.metrics["perplexity"] == math.exp(metrics["eval_loss"])


def test_the_loss_of_gpt2_is_divided_by_the_tokens_it_predicts(gpt2: str) -> None:
    """transformers divides by those of the whole block, of which the first is never predicted."""
    train, dev = lines(40, 1), lines(20, 2)
    words = ["--train_file", write_text(Path("train.txt"), train), "--do_train", "--do_eval", "--block_size", "32"]
    words += ["--validation_file", write_text(Path("dev.txt"), dev), "--model_name_or_path", gpt2]
    finished = run("clm", [*words, "--max_steps", "1", *SHORT])
    other, metrics = theirs(gpt2, train, dev, max_steps=1)
    for name in ("loss", "grad_norm"):
        ours, its = (trainer.state.log_history[0][name] for trainer in (finished.trainer, other))
        assert ours == pytest.approx(its * 32 / 31, rel=1e-5)
    assert finished.metrics["eval_loss"] == pytest.approx(metrics["eval_loss"] * 32 / 31, rel=1e-4)
    assert finished.metrics["eval_accuracy"] == metrics["eval_accuracy"]


def test_samples_are_blocks_and_dropped_tokens_are_counted(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_text(Path("text.txt"), texts := lines(60))
    words = ["--validation_file", file, "--test_file", file, "--do_eval", "--do_predict", "--block_size", "40"]
    limits = ["--max_eval_samples", "3", "--max_predict_samples", "2"]
    finished = run("clm", [*words, *limits, "--model_name_or_path", model, *SHORT])
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    total = sum(len(tokenizer(text)["input_ids"]) for text in texts)
    told = (
        f"text.txt: {total // 40} blocks of 40 tokens; {total % 40} of {total:,} tokens fill no block and are dropped"
    )
    assert told in capsys.readouterr().err
    assert finished.metrics["eval_samples"] == 3
    assert len(read_rows(Path("out/predictions.jsonl"))) == finished.metrics["predict_samples"] == 2


def test_what_is_kept_for_evaluation_is_never_trained_on(model: str) -> None:
    words = ["--train_file", write_text(Path("text.txt"), lines(100)), "--model_name_or_path", model]
    words += ["--block_size", "16", *FEW]
    trained = run("clm", [*words, "--do_train"]).trainer.train_dataset
    both = run("clm", [*words, "--do_train", "--do_eval"]).trainer
    evaluated = run("clm", [*words, "--do_eval"]).trainer.eval_dataset
    assert trained["input_ids"][:] == both.train_dataset["input_ids"][:]
    assert evaluated["input_ids"][:] == both.eval_dataset["input_ids"][:]


def test_lines_without_line_breaks(model: str) -> None:
    words = ["--validation_file", write_text(Path("text.txt"), lines(20)), "--do_eval", "--model_name_or_path", model]
    kept = run("clm", [*words, *SHORT])
    joined = run("clm", [*words, "--keep_linebreaks", "false", *SHORT])
    shown = [
        finished.trainer.processing_class.decode(finished.trainer.eval_dataset[0]["input_ids"])
        for finished in (kept, joined)
    ]
    assert "\n" in shown[0]
    assert shown[0].replace("\n", "")[:100] == shown[1][:100]


def test_packed_rows_are_kept_apart(model: str) -> None:
    """The losses of packed rows are those of the same rows padded, each of which sees itself alone."""
    rows = [{"text": text} for text in [*lines(16, 1), "", " ".join(lines(8, 3))]]
    words = ["--train_file", write_rows(Path("train.jsonl"), rows), "--validation_split_percentage", "0"]
    words += ["--model_name_or_path", model, "--do_train", "--block_size", "48", "--num_train_epochs", "1", *SHORT]
    packed = run("clm", [*words, "--packing", "--validation_file", "train.jsonl", "--do_eval"])
    lengths = [len(row) for row in packed.trainer.train_dataset["input_ids"]]
    assert len(lengths) > 17 and max(lengths) == 48 and min(lengths) > 1
    batch = next(iter(packed.trainer.get_train_dataloader()))
    assert batch["input_ids"].shape[0] == 1
    starts = [*(batch["position_ids"][0] == 0).nonzero().flatten().tolist(), batch["input_ids"].shape[1]]
    assert len(starts) == 9
    network, total = packed.trainer.model.eval(), 0.0
    with torch.no_grad():
        for first, last in pairwise(starts):
            alone = batch["input_ids"][:, first:last]
            total += float(network(input_ids=alone, labels=alone).loss) * (last - first - 1)
        together = float(network(**batch).loss)
    assert together == pytest.approx(total / (starts[-1] - 8), rel=1e-5)
    assert packed.metrics["perplexity"] > 1


def test_packing_needs_a_pad_token_for_evaluation(tmp_path: Path) -> None:
    model = make_model(tmp_path / "no-pad", "gpt2", GPT, "GPT2LMHeadModel", pad_token=None)
    file = write_text(Path("text.txt"), lines(40))
    words = ["--train_file", file, "--do_train", "--do_eval", "--model_name_or_path", model, "--block_size", "16"]
    with pytest.raises(ConfigError, match=r"(?s)no pad token.*--pad_token '</s>'"):
        run("clm", [*words, "--packing", *FEW])
    assert run("clm", [*words, "--packing", "--pad_token", "</s>", *FEW]).metrics["perplexity"] > 1
    assert run("clm", [*words, *FEW]).metrics["perplexity"] > 1  # blocks are of one length


WRONG = {
    "no text": (["\n"] * 30, ["--keep_linebreaks", "false"], DataError, "text.txt holds no text"),
    "an empty file": ([], [], DataError, "text.txt holds no rows"),
    "too little text": (["Anna.\n"], ["--block_size", "64"], DataError, "fills no block of 64 .*1 rows.*--block_size"),
    "no position": (["a\n"], ["--block_size", "65"], ConfigError, "--block_size 65: the model has 64 positions"),
    "no block": (["a\n"], ["--block_size", "1"], ConfigError, "--block_size 1"),
    "no column": (["a\n"], ["--text_column_name", "body"], DataError, "no column 'body'.*'text'.*--text_column_name"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_input_is_named(gpt2: str, mistake: str) -> None:
    texts, more, kind, message = WRONG[mistake]
    words = ["--validation_file", write_text(Path("text.txt"), texts), "--do_eval", "--model_name_or_path", gpt2]
    with pytest.raises(kind, match=f"(?s){message}"):
        run("clm", [*words, *more, *SHORT])


def test_rows_without_text_are_named(model: str) -> None:
    rows = write_rows(Path("rows.jsonl"), [{"id": 1, "body": "a"}, {"id": 2, "body": None}])
    words = ["--validation_file", rows, "--do_eval", "--model_name_or_path", model, *SHORT]
    with pytest.raises(DataError, match=r"rows.jsonl, row 2, column 'body'"):
        run("clm", words)


def test_blocks_and_their_length(gpt2: str, model: str) -> None:
    networks = [transformers.AutoModelForCausalLM.from_pretrained(each) for each in (gpt2, model)]
    assert [count_positions(network) for network in networks] == [64, None]
    roberta = transformers.RobertaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=0, num_attention_heads=1)
    roberta.max_position_embeddings, roberta.pad_token_id = 34, 1
    assert count_positions(transformers.RobertaForMaskedLM(roberta)) == 32
    rows = {"input_ids": [[1, 2, 3], [], [4, 5, 6, 7]], "mask": [[0, 0, 0], [], [1, 1, 1, 1]]}
    assert RowJoiner(3, labelled=True)(rows) == {
        "input_ids": [[1, 2, 3], [4, 5, 6]],
        "mask": [[0, 0, 0], [1, 1, 1]],
        "labels": [[1, 2, 3], [4, 5, 6]],
    }
    assert RowJoiner(8)(rows) == {"input_ids": [], "mask": []}
    assert RowCutter(3)(rows) == {"input_ids": [[1, 2, 3], [4, 5, 6]], "mask": [[0, 0, 0], [1, 1, 1]]}
    assert perplexity(1e6) == np.inf
