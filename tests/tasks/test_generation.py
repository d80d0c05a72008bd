"""`ostinato generate`: the same texts as transformers' `generate`, where prompts come from, and what is refused."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ostinato.cli import main
from ostinato.tasks.generation import GenerationOptions, TextGenerator
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, build_translation_pair, create_random
from ostinato.tasks.tokenizers import GPT, train_tokenizer
from tests.support.seq2seq_runs import save_model
from tests.support.task_runs import read_rows

PROMPT = "Anna in Riga thought"


@pytest.fixture(scope="module")
def going_on(shelf: Path) -> str:
    """A directory with a small language model."""
    numbers = create_random(0)
    lines = [build_sentence(list(SUBJECTS)[i % 4], numbers) for i in range(100)]
    tokenizer = train_tokenizer(lines, 400, GPT)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=48,
        initializer_range=0.5,  # so that its words depend on those before
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    transformers.set_seed(3)
    transformers.GPT2LMHeadModel(config).save_pretrained(shelf / "gpt")
    tokenizer.save_pretrained(shelf / "gpt")
    return str(shelf / "gpt")


@pytest.fixture(scope="module")
def answering(shelf: Path) -> str:
    """A directory with a model that reads and writes."""
    numbers = create_random(0)
    return save_model("bart", [build_translation_pair(numbers) for _ in range(60)], shelf / "bart")


def run_generate(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints."""
    capsys.readouterr()
    assert main(["generate", "--use_cpu", *words]) == 0
    return capsys.readouterr().out


def plainly(directory: str, prompt: str, *, seed: int = 42, **options: Any) -> list[str]:
    """What somebody who knows transformers would write."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    given = tokenizer(prompt, return_tensors="pt")
    inputs = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}
    torch.manual_seed(seed)
    return tokenizer.batch_decode(auto.from_pretrained(directory).generate(**inputs, **options), True)


DRAWN = {"do_sample": True, "top_k": 0, "top_p": 0.9, "temperature": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "": {"max_new_tokens": 20, **DRAWN},
    "--length 7 --k 5 --p 0.5 --temperature 0.7 --repetition_penalty 1.3 --seed 3": dict(
        max_new_tokens=7, do_sample=True, top_k=5, top_p=0.5, temperature=0.7, repetition_penalty=1.3, seed=3
    ),
    "--num_beams 3 --num_return_sequences 2": dict(
        max_new_tokens=20, do_sample=False, num_beams=3, num_return_sequences=2
    ),
    "--do_sample false --max_new_tokens 5": dict(max_new_tokens=5, do_sample=False),
    "--num_return_sequences 3": {"max_new_tokens": 20, "num_return_sequences": 3, **DRAWN},
}


@pytest.mark.parametrize("words", WAYS)
def test_texts_are_those_of_generate(going_on: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_generate(capsys, "--model_name_or_path", going_on, "--prompt", PROMPT, *words.split())
    expected = plainly(going_on, PROMPT, **WAYS[words])
    assert all(text.startswith(PROMPT) and len(text) > len(PROMPT) for text in expected)
    assert printed == "".join(f"{text}\n" for text in expected)


def test_an_encoder_decoder_does_not_sample(answering: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_name_or_path", answering, "--prompt", "often the king asks the dog"]
    expected = plainly(answering, "often the king asks the dog", max_new_tokens=63, do_sample=False)
    assert run_generate(capsys, *words) == f"{expected[0]}\n"
    beams = plainly(answering, "often the king asks the dog", max_new_tokens=9, do_sample=False, num_beams=2)
    assert run_generate(capsys, *words, "--num_beams", "2", "--length", "9") == f"{beams[0]}\n"


@pytest.mark.parametrize("kind", ["going_on", "answering"])
def test_streamed_pieces_equal_the_text(
    kind: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    generator, pieces = TextGenerator.load(request.getfixturevalue(kind), use_cpu=True), []
    torch.manual_seed(1)
    whole = generator.generate(PROMPT, GenerationOptions(max_new_tokens=12))
    torch.manual_seed(1)
    assert (
        generator.generate(PROMPT, GenerationOptions(max_new_tokens=12), show=pieces.append)
        == whole
        == ["".join(pieces)]
    )
    assert len(pieces) > 3
    words = ["--model_name_or_path", request.getfixturevalue(kind), "--prompt", PROMPT]
    assert run_generate(capsys, *words, "--stream") == run_generate(capsys, *words)


def test_a_text_ends_before_the_stop_token(going_on: str) -> None:
    generator, greedy = TextGenerator.load(going_on, use_cpu=True), GenerationOptions(do_sample=False)
    (whole,) = generator.generate(PROMPT, greedy)
    stop, pieces = whole[5], []
    options = GenerationOptions(do_sample=False, stop_token=stop)
    assert generator.generate(PROMPT, options, show=pieces.append) == [whole.partition(stop)[0]] == ["".join(pieces)]


def test_prompts_come_from_lines_and_go_to_lines(
    answering: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("prompts.txt").write_text("often the king asks\ntoday the dog sees\n", encoding="utf-8")
    words = ["--model_name_or_path", answering, "--length", "6"]
    printed = run_generate(capsys, *words, "--prompt_file", "prompts.txt", "--output", "texts.jsonl")
    rows = read_rows(Path("texts.jsonl"))
    assert [row["prompt"] for row in rows] == ["often the king asks", "today the dog sees"]
    assert [row["text"] for row in rows] == printed.splitlines()
    for more in (["--prompt_file", "-"], []):
        monkeypatch.setattr("sys.stdin", io.StringIO(Path("prompts.txt").read_text(encoding="utf-8")))
        assert run_generate(capsys, *words, *more) == printed


def test_a_prefix_is_read_and_not_shown(going_on: str, answering: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_generate(capsys, "--model_name_or_path", going_on, "--prompt", PROMPT, "--prefix", "Once. ")
    assert f"Once. {printed}" == plainly(going_on, f"Once. {PROMPT}", max_new_tokens=20, **DRAWN)[0] + "\n"
    config = transformers.AutoConfig.from_pretrained(answering)
    config.task_specific_params = {"translation": {"prefix": "the old "}}
    config.save_pretrained(answering)
    words = ["--model_name_or_path", answering, "--prompt", "king asks the dog"]
    known = run_generate(capsys, *words)
    assert (
        known == run_generate(capsys, *words, "--prefix", "the old ") != run_generate(capsys, *words, "--prefix", "")
    )


def test_new_tokens_are_limited_by_the_positions(
    going_on: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_generate(capsys, "--model_name_or_path", going_on, "--prompt", PROMPT, "--length", "100")
    count = len(transformers.AutoTokenizer.from_pretrained(going_on)(PROMPT)["input_ids"])
    assert f"at most {48 - count} tokens are generated, not 100: the model has 48 positions" in caplog.text
    run_generate(
        capsys, "--model_name_or_path", going_on, "--prompt", PROMPT, "--num_beams", "2", "--temperature", "2"
    )
    assert "--temperature, --k and --p have no effect" in caplog.text
    run_generate(capsys, "--model_name_or_path", going_on, "--prompt", PROMPT, "--fp16")
    assert "--fp16 has no effect" in caplog.text


WRONG = {
    "--prompt Anna": "no model is named(?s:.*)--sample",
    "--model_name_or_path nowhere/model --prompt Anna": "no config can be loaded from 'nowhere/model'",
    "--model_name_or_path empty --prompt Anna": "there is no model in empty(?s:.*)use the --output_dir",
    "--model_name_or_path stopped --prompt Anna": "only checkpoints(?s:.*)--model_name_or_path stopped/checkpoint-3",
    "--model_name_or_path judge --prompt Anna": "cannot generate text(?s:.*)BertForSequenceClassification",
    "--model_name_or_path GPT --prompt ": "--prompt: the prompt is empty",
    "--model_name_or_path GPT --prompt_file lines.txt": "lines.txt, line 2: the prompt is empty",
    "--model_name_or_path GPT --prompt_file none.txt": "--prompt_file none.txt cannot be read",
    "--model_name_or_path GPT --prompt_file empty.txt": "empty.txt holds no prompt",
    "--model_name_or_path GPT --prompt LONG": "the prompt is too long: [0-9]+ tokens(?s:.*)48 positions",
    "--model_name_or_path GPT --prompt Anna --stream --num_beams 2": "--stream with several texts at once",
    "--model_name_or_path GPT --prompt Anna --temperature 0": "cannot be generated with(?s:.*)temperature",
    "--model_name_or_path GPT --prompt Anna --output none/texts.jsonl": "--output none/texts.jsonl",
    "--model_name_or_path GPT --prompt Anna --target_lang de": "is not multilingual",
}


@pytest.mark.parametrize("words", WRONG)
def test_mistakes_are_explained(going_on: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("stopped/checkpoint-3").mkdir(parents=True)
    Path("stopped/checkpoint-3/trainer_state.json").write_text("{}", encoding="utf-8")
    Path("lines.txt").write_text("Anna\n\nPaul\n", encoding="utf-8")
    Path("empty.txt").write_text("", encoding="utf-8")
    transformers.BertConfig(architectures=["BertForSequenceClassification"]).save_pretrained("judge")
    given = [{"GPT": going_on, "LONG": "Anna in Riga " * 40}.get(word, word) for word in words.split(" ")]
    assert main(["generate", "--use_cpu", *given]) == 1
    problem = capsys.readouterr().err
    assert re.search(WRONG[words], problem), problem


def test_counts_are_checked_by_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--prompt", "Anna", "--length", "0"]) == 2
    assert "--length/--max_new_tokens: '0' is not a whole number of at least 1" in capsys.readouterr().err


def test_the_sample_uses_the_model_that_is_there(going_on: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs").mkdir()
    Path(going_on).rename("runs/clm")
    assert run_generate(capsys, "--sample").startswith("Anna in Riga")
