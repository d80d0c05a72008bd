"""What is wrong with how texts are to be generated: every text word by word, before anything is trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ostinato
from tests.support import tiny
from tests.support.apis import QUIET, load_library

pytest.importorskip("transformers")
load_library("transformers")


def arguments(directory: Path, **settings: Any) -> Any:
    return ostinato.Seq2SeqTrainingArguments(str(directory), **QUIET, predict_with_generate=True, **settings)


def generation_config(**settings: Any) -> Any:
    return load_library("transformers").GenerationConfig(**settings)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# what is passed as generation_config, given a directory; what is said; as what it can be caught
CONFIGS: dict[str, tuple[Callable[[Path], Any], str, type[Exception]]] = {
    "a number": (
        lambda directory: 5,
        """
        generation_config is of type int, which is not a generation config
          why: it is 5
          fix: pass GenerationConfig(...), a dict of its arguments, or the directory, file or hub model that holds one
        """,
        AttributeError,
    ),
    "a directory that is not there": (
        lambda directory: str(directory / "none"),
        """
        generation_config='{directory}/none' cannot be read
          why: there is no such file or directory
          fix: name a directory or file with a generation config, or a model of the hub; or pass GenerationConfig(...)
        """,
        OSError,
    ),
    "a directory without it": (
        lambda directory: directory,
        """
        generation_config='{directory}' cannot be read
          why: the directory holds no generation_config.json
          fix: name a directory or file with a generation config, or a model of the hub; or pass GenerationConfig(...)
        """,
        OSError,
    ),
    "a file that is no JSON": (
        lambda directory: written(directory / "wrong.json", "{max_length"),
        """
        generation_config='{directory}/wrong.json' cannot be read
          why: It looks like the config file at '{directory}/wrong.json' is not a valid JSON file.
          fix: name a directory or file with a generation config, or a model of the hub; or pass GenerationConfig(...)
        """,
        OSError,
    ),
    "a contradiction": (
        lambda directory: {"num_return_sequences": 3},
        """
        generation_config contradicts itself
          why: Greedy methods (do_sample != True) without beam search do not support `num_return_sequences` different \
than 1 (got 3).
          fix: correct it: generation or saving a checkpoint would fail
        """,
        ValueError,
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_wrong_generation_config(case: str, tmp_path: Path) -> None:
    make, text, kind = CONFIGS[case]
    with pytest.raises(ostinato.ConfigError) as caught:
        ostinato.Seq2SeqTrainer(tiny.t5(), arguments(tmp_path / "out", generation_config=make(tmp_path)))
    assert str(caught.value) == inspect.cleandoc(text).replace("{directory}", str(tmp_path))
    assert isinstance(caught.value, kind)


def test_a_model_that_cannot_generate(tmp_path: Path) -> None:
    with pytest.raises(ostinato.ConfigError) as caught:
        ostinato.Seq2SeqTrainer(tiny.bert(), arguments(tmp_path))
    assert isinstance(caught.value, AttributeError)
    assert str(caught.value) == inspect.cleandoc(
        """
        predict_with_generate=True, but BertForSequenceClassification cannot generate
          why: the model has no generate()
          fix: load it with AutoModelForSeq2SeqLM or AutoModelForCausalLM, or leave predict_with_generate out
        """
    )


def test_numbers_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ostinato.ConfigError) as caught:
        arguments(tmp_path, generation_max_length=0, generation_num_beams="4")
    assert str(caught.value) == inspect.cleandoc(
        """
        2 problems with the arguments:
        1. generation_max_length=0 is not a whole number of at least 1
          why: it is out of range
          fix: the default is generation_max_length=None
        2. generation_num_beams='4' is not a whole number of at least 1
          why: it is a str
          fix: pass generation_num_beams as a number
        """
    )


def test_an_option_that_nothing_takes_is_named(tmp_path: Path) -> None:
    trainer = ostinato.Seq2SeqTrainer(tiny.t5(), arguments(tmp_path))
    with pytest.raises(ValueError, match="num_beam"):
        trainer.predict(tiny.translation_rows(4), num_beam=3)
