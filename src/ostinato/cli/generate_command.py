"""Generate text with a trained model: continue a prompt, or summarize or translate it.

  ostinato generate --sample                                        see it work, offline
  ostinato generate --model_name_or_path out --prompt "Once upon a time" --length 50 --stream
  ostinato generate --model_name_or_path out --prompt_file texts.txt --num_beams 4 > answers.txt
  echo "Once upon a time" | ostinato generate --model_name_or_path out --output answers.jsonl

A language model samples its words, unless there are beams; an encoder-decoder model searches for the likeliest text.
The same --seed makes the same texts.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import ostinato

from ..core.errors import ConfigError, DataError

SUMMARY = "let a trained model write: go on with a prompt, summarize or translate it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("which model")
    model.add_argument(
        "--model_name_or_path", metavar="DIR", help="the output_dir of a training, or a name on the hub"
    )
    model.add_argument("--model_type", help=argparse.SUPPRESS)  # accepted for run_generation.py; the config has it
    model.add_argument("--tokenizer_name", metavar="DIR", help="a tokenizer other than the model's")
    model.add_argument("--source_lang", metavar="CODE", help="of a model of many languages: the prompt's")
    model.add_argument("--target_lang", metavar="CODE", help="of a model of many languages: the one to write")
    model.add_argument("--use_cpu", action="store_true", help="even if there is a GPU")
    model.add_argument("--fp16", action="store_true", help="with half the precision, on a GPU")
    model.add_argument("--sample", action="store_true", help="a small model, trained on the spot if it is not there")
    prompts = parser.add_argument_group("prompts")
    prompts.add_argument("--prompt", action="append", metavar="TEXT", help="what to read; may be given several times")
    prompts.add_argument("--prompt_file", metavar="FILE", help="a prompt on each line; - is standard input")
    prompts.add_argument("--prefix", metavar="TEXT", help="stands before every prompt, as T5 wants it")
    writing = parser.add_argument_group("how it writes")
    writing.add_argument(
        "--length", "--max_new_tokens", type=_count, dest="max_new_tokens", metavar="N",
        help="at most so many tokens (20; 128 of a model that answers)",
    )  # fmt: skip
    writing.add_argument("--stop_token", metavar="TEXT", help="the text ends before it")
    writing.add_argument("--do_sample", type=_yes, nargs="?", const=True, metavar="BOOL", help="draw the words")
    writing.add_argument(
        "--temperature", type=float, metavar="T", help="below 1 bolder to the likely, above 1 wilder (1)"
    )
    writing.add_argument("--k", type=int, metavar="N", help="draw from the N likeliest tokens (0: from all)")
    writing.add_argument("--p", type=float, metavar="P", help="draw from the likeliest that make P together (0.9)")
    writing.add_argument("--repetition_penalty", type=float, metavar="R", help="above 1: repeats less")
    writing.add_argument("--num_beams", type=_count, metavar="N", help="keep so many candidates, and draw nothing")
    writing.add_argument(
        "--num_return_sequences", type=_count, default=1, metavar="N", help="texts for each prompt (1)"
    )
    writing.add_argument("--seed", type=int, default=42, metavar="N", help="of what is drawn (42)")
    output = parser.add_argument_group("where it goes")
    output.add_argument("--stream", action="store_true", help="show every token when it is written")
    output.add_argument("--output", metavar="FILE", help="also write JSON Lines: prompt, text")


def run(options: argparse.Namespace) -> int:
    from ..tasks import generation  # noqa: PLC0415

    if options.sample:
        options.prompt = options.prompt or ([generation.SAMPLE_PROMPT] if options.prompt_file is None else None)
    elif options.model_name_or_path is None:
        raise ConfigError(
            what="no model is named",
            why="something has to write",
            fix="add --model_name_or_path DIR with the output_dir of a training, or --sample",
        )
    if options.output is not None and not Path(options.output).parent.is_dir():
        raise ConfigError(f"--output {options.output}", "there is no such directory", "make it, or name another")
    prompts = _prompts(options)
    if not sys.stderr.isatty():  # a pipe would get every redraw
        generation.import_transformers().utils.logging.disable_progress_bar()
    source = options.model_name_or_path or generation.prepare_sample_model()
    generator = generation.TextGenerator.load(
        source, options.tokenizer_name, use_cpu=options.use_cpu, fp16=options.fp16
    )
    if options.source_lang or options.target_lang:
        generator.set_languages(options.source_lang, options.target_lang)
    names = [field.name for field in fields(generation.GenerationOptions)]
    writing = generation.GenerationOptions(**{name: getattr(options, name) for name in names})
    ostinato.set_seed(options.seed)
    written = [
        (prompt, text) for prompt in prompts for text in _write(generator, prompt, writing, stream=options.stream)
    ]
    if options.output is not None:
        lines = (json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False) for prompt, text in written)
        Path(options.output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"written: {options.output}", file=sys.stderr)
    return 0


def _write(generator: Any, prompt: str, writing: Any, *, stream: bool) -> list[str]:
    """Return the texts for one prompt, printed as they come. A continuation is printed after the prompt."""
    before = "" if generator.is_encoder_decoder else prompt
    if stream:
        print(before, end="", flush=True)
        texts = generator.generate(prompt, writing, show=lambda piece: print(piece, end="", flush=True))
        print()
        return texts
    texts = generator.generate(prompt, writing)
    for text in texts:
        print(before + text, flush=True)
    return texts


def _prompts(options: argparse.Namespace) -> list[str]:
    """Return the prompts of the command line, of a file, or of standard input if it is redirected."""
    if options.prompt and options.prompt_file:
        raise ConfigError("--prompt and --prompt_file", "prompts come from one of them", "leave one out")
    if options.prompt:
        given, where = options.prompt, "--prompt"
    elif options.prompt_file not in (None, "-"):
        where = options.prompt_file
        try:
            given = Path(where).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--prompt_file {where} cannot be read", str(error), "check the path") from error
    elif options.prompt_file is None and sys.stdin.isatty():
        given, where = [input("prompt: ")], "the prompt"
    else:
        given, where = sys.stdin.read().splitlines(), "standard input"
    if not given:
        raise DataError(f"{where} holds no prompt", "something has to be read", "--prompt TEXT, or a line for each")
    for number, prompt in enumerate(given, start=1):
        if not prompt.strip():
            place = f"{where}, line {number}" if len(given) > 1 else where
            raise DataError(f"{place}: the prompt is empty", "nothing can follow nothing", "write a word at least")
    return list(given)


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def _yes(word: str) -> bool:
    if word.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise argparse.ArgumentTypeError(f"{word!r} is neither true nor false")
    return word.lower() in ("true", "yes", "1")
