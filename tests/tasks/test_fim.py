"""Fill in the middle: its sample, how a block is taken apart, the same in every command, wrong input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from ostinato import ConfigError
from ostinato.tasks import run
from ostinato.tasks.fim import FillInTheMiddle, MoveMiddle
from ostinato.tasks.text_blocks import RowJoiner
from ostinato.tasks.tokenizers import GPT
from tests.support.language_runs import SHORT, lines, make_model, write_text
from tests.support.task_runs import read_rows

PREFIX, MIDDLE, SUFFIX = 97, 98, 99
BLOCK = list(range(20))


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return make_model(shelf / "model", "gpt2", GPT, "GPT2LMHeadModel")


def test_the_sample_is_learned() -> None:
    finished = run("fim", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["perplexity"] < finished.sample.baseline / 4, finished.metrics
    predicted = read_rows(Path("runs/fim/predictions.jsonl"))
    moved = [row["text"].startswith("<fim_prefix>") for row in predicted]
    assert {True, False} == set(moved)
    assert finished.trainer.processing_class.convert_tokens_to_ids("<fim_middle>") == 501


def mover(*, rate: float = 1, spm_rate: float = 0.5, keeps_length: bool = True, seed: int = 0) -> MoveMiddle:
    marks = (PREFIX, MIDDLE, SUFFIX)
    return MoveMiddle(marks, rate=rate, spm_rate=spm_rate, keeps_length=keeps_length, seed=(seed, 0))


def put_back(ids: list[int]) -> list[int]:
    """The text that was taken apart, in the order in which it was written."""
    if ids[1] == SUFFIX:
        cut = ids.index(MIDDLE)
        return [*ids[cut + 1 :], *ids[2:cut]]
    first, second = ids.index(SUFFIX), ids.index(MIDDLE)
    return [*ids[1:first], *ids[second + 1 :], *ids[first + 1 : second]]


@pytest.mark.parametrize("keeps_length", [True, False])
def test_rearranged_parts_restore_the_text(keeps_length: bool) -> None:
    rows = mover(keeps_length=keeps_length)({"input_ids": [BLOCK] * 200}, range(200))
    length = len(BLOCK) if keeps_length else len(BLOCK) + 3
    assert {len(row) for row in rows["input_ids"]} == {length}
    assert all(put_back(row) == BLOCK[: length - 3] for row in rows["input_ids"])
    orders = [row[1] == SUFFIX for row in rows["input_ids"]]
    assert 60 < sum(orders) < 140
    assert ("labels" in rows) == keeps_length


def test_share_of_rearranged_blocks() -> None:
    def moved(**rates: float) -> list[list[int]]:
        rows = mover(**rates)({"input_ids": [BLOCK] * 400}, range(400))["input_ids"]
        return [row for row in rows if row != BLOCK]

    assert moved(rate=0) == []
    assert 160 < len(moved(rate=0.5)) < 240
    assert np.mean([row[1] == 0 for row in moved(spm_rate=0)]) > 0.3  # the prefix, unless it is empty
    assert all(row[1] == SUFFIX for row in moved(spm_rate=1))
    assert mover()({"input_ids": [[1, 2, 3]]}, [0])["input_ids"] == [[1, 2, 3]]


def test_rearranging_depends_on_seed_and_block_number_only() -> None:
    whole = mover()({"input_ids": [BLOCK] * 50}, range(50))["input_ids"]
    parts = [mover()({"input_ids": [BLOCK]}, [number])["input_ids"][0] for number in reversed(range(50))]
    assert whole == parts[::-1]
    assert len({tuple(block) for block in whole}) > 20  # each in another way
    assert whole != mover(seed=1)({"input_ids": [BLOCK] * 50}, range(50))["input_ids"]


def test_a_command_makes_the_same_blocks_again_and_others_with_another_seed(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--train_file", write_text(Path("text.txt"), lines(60)), "--do_train", "--do_eval", "--max_steps", "1"]
    words += ["--model_name_or_path", model, "--block_size", "32", *SHORT]

    def blocks(*more: str) -> tuple[list[Any], list[Any]]:
        trainer = run("fim", [*words, *more]).trainer
        return trainer.train_dataset["input_ids"][:], trainer.eval_dataset["input_ids"][:]

    first, again, other = blocks(), blocks("--overwrite_cache"), blocks("--seed", "8")
    assert first == again
    monkeypatch.setattr(MoveMiddle, "__call__", None)
    monkeypatch.setattr(RowJoiner, "__call__", None)
    monkeypatch.setattr(FillInTheMiddle, "encode", None)
    assert first == blocks()  # found in the cache
    assert first[0] != other[0]
    assert {len(block) for block in first[0]} == {32}


@pytest.mark.parametrize("more", [["--truncate_or_pad", "false"], ["--packing"]], ids=["longer blocks", "packed rows"])
def test_no_token_is_lost_where_rows_may_be_longer(model: str, more: list[str]) -> None:
    file = write_text(Path("text.txt"), lines(40))
    words = ["--train_file", file, "--validation_file", file, "--do_train", "--do_eval", "--max_steps", "2", *more]
    words += ["--model_name_or_path", model, *SHORT]
    finished = run("fim", [*words, "--block_size", "61", "--fim_rate", "1"])
    rows = finished.trainer.train_dataset["input_ids"][:]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    text = [token for line in lines(40) for token in tokenizer(line)["input_ids"]]
    kept = sum(len(row) - 3 for row in rows)
    assert kept == (len(text) if "--packing" in more else len(text) // 61 * 61)
    assert finished.metrics["perplexity"] > 1
    with pytest.raises(ConfigError, match=r"(?s)has 64 positions.*62 tokens and 3 that are added.*61 or less"):
        run("fim", [*words, "--block_size", "62"])


def test_a_rate_is_a_share() -> None:
    with pytest.raises(ConfigError, match="--fim_rate 50"):
        run("fim", ["--fim_rate", "50", "--do_eval", *SHORT])
