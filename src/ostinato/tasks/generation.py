"""Text generation with a trained model: a language model continues a text, an encoder-decoder answers it with another.

writer = Writer.load("runs/clm")
writer.write("Anna in Riga", Writing(max_new_tokens=30, do_sample=False))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ostinato import ConfigError, DataError, get_last_checkpoint
from ostinato.logging import get_logger

from .command import run
from .languages import is_multilingual, token_id
from .models import import_transformers, load_config, load_model, load_tokenizer
from .task_arguments import ModelArguments

NEW_TOKENS = {False: 20, True: 128}  # the defaults of a language model, and of an encoder-decoder
SAMPLE_TASK, SAMPLE_HOME, SAMPLE_PROMPT = "clm", "runs/clm", "Anna in Riga"
_UNFINISHED = "\ufffd"  # the output of a tokenizer for half a character
Show = Callable[[str], None]


@dataclass(frozen=True)
class Writing:
    """Options of text generation. None leaves an option to the model, or to the default of its kind."""

    max_new_tokens: int | None = None
    do_sample: bool | None = None  # default: a language model without beams samples, others find the likeliest text
    temperature: float | None = None
    k: int | None = None  # sample from the k likeliest tokens; 0: from all
    p: float | None = None  # sample from the likeliest tokens that have this probability together
    repetition_penalty: float | None = None
    num_beams: int | None = None
    num_return_sequences: int = 1
    stop_token: str | None = None  # the text ends before it
    prefix: str | None = None  # put before every prompt, and not shown

    def options(self, *, answers: bool) -> dict[str, Any]:
        """Return the arguments of transformers' `generate`, for a model that `answers` a prompt or continues it.

        >>> Writing(num_beams=4).options(answers=False)
        {'max_new_tokens': 20, 'do_sample': False, 'num_beams': 4, 'num_return_sequences': 1}
        """
        draws = self.do_sample
        if draws is None:
            draws = not answers and (self.num_beams or 1) == 1
        options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens or NEW_TOKENS[answers], "do_sample": draws}
        drawing = {"temperature": (self.temperature, 1.0), "top_k": (self.k, 0), "top_p": (self.p, 0.9)}
        if draws:
            options |= {name: default if value is None else value for name, (value, default) in drawing.items()}
        elif any(value is not None for value, _ in drawing.values()):
            get_logger().info("--temperature, --k and --p have no effect: nothing is drawn without --do_sample")
        others = {"num_beams": self.num_beams, "repetition_penalty": self.repetition_penalty}
        options |= {name: value for name, value in others.items() if value is not None}
        return {**options, "num_return_sequences": self.num_return_sequences}


class Writer:
    """A model with its tokenizer, on its device."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.answers = bool(model.config.is_encoder_decoder)

    @classmethod
    def load(cls, source: str, tokenizer: str | None = None, *, use_cpu: bool = False, fp16: bool = False) -> Writer:
        """Load the model of a directory, such as a recipe's output_dir, or of a name on the hub."""
        asked = ModelArguments(model_name_or_path=source, tokenizer_name=tokenizer)
        _check_place(source)
        config = load_config(asked)
        _check_kind(config, source)
        kind = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
        model, device = load_model(kind, asked, config), _device(use_cpu=use_cpu)
        if fp16 and device.type == "cpu":
            get_logger().info("--fp16 has no effect: a CPU is slower with it")
        elif fp16:
            model = model.half()
        return cls(model.to(device), load_tokenizer(asked))

    def set_languages(self, source: str | None, target: str | None) -> None:
        """Set what a multilingual model reads and writes; None leaves it as it was trained."""
        if not is_multilingual(self.tokenizer):
            raise ConfigError(
                what="--source_lang and --target_lang",
                why=f"{type(self.tokenizer).__name__} has but one language",
                fix="leave them out; a model like T5 is told what to do by --prefix",
            )
        if source is not None:
            token_id(self.tokenizer, source, "--source_lang")
            self.tokenizer.src_lang = source
        if target is not None:
            start = token_id(self.tokenizer, target, "--target_lang")
            self.model.generation_config.forced_bos_token_id = start

    def write(self, prompt: str, writing: Writing, show: Show | None = None) -> list[str]:
        """Return the requested number of texts that follow the prompt, or answer it. `show` gets them in pieces.

        The same seed (`set_seed`) makes the same texts.
        """
        options = writing.options(answers=self.answers)
        if show is not None and (options["num_return_sequences"] > 1 or options.get("num_beams", 1) > 1):
            raise ConfigError(
                what="--stream with several texts at once",
                why="beams and --num_return_sequences write them side by side",
                fix="leave out --stream, or --num_beams and --num_return_sequences",
            )
        ids = self._tokens(self._prefix(writing) + prompt)
        options["max_new_tokens"] = self._room(len(ids), writing.max_new_tokens, options["max_new_tokens"])
        read = self.tokenizer.decode(ids, skip_special_tokens=True) if not self.answers else ""

        def text_of(new: list[int]) -> str:
            whole = self.tokenizer.decode(new if self.answers else [*ids, *new], skip_special_tokens=True)
            text = whole[len(read) :]
            return text if writing.stop_token is None else text.partition(writing.stop_token)[0]

        shown = None if show is None else _Shown(text_of, show)
        rows = self._generate(ids, options, shown)
        return [text_of(row if self.answers else row[len(ids) :]) for row in rows]

    def _prefix(self, writing: Writing) -> str:
        if writing.prefix is not None:
            return writing.prefix
        known = {
            task.get("prefix") for task in (getattr(self.model.config, "task_specific_params", None) or {}).values()
        }
        if not self.answers or len(known) != 1:  # with several tasks it is not known which is meant
            return ""
        return known.pop() or ""

    def _tokens(self, text: str) -> list[int]:
        ids = self.tokenizer(text)["input_ids"]
        ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None}
        while not self.answers and ids and ids[-1] in ends:
            ids = ids[:-1]  # a text that has ended is not continued
        return ids

    def _room(self, length: int, asked: int | None, wanted: int) -> int:
        """Return how many tokens may be generated after a prompt of this length."""
        places = getattr(self.model.config, "max_position_embeddings", None)
        if not isinstance(places, int) or places <= 0:  # relative positions have no limit
            return wanted
        if length > places - (0 if self.answers else 1):
            raise DataError(
                what=f"the prompt is too long: {length:,} tokens",
                why=f"{type(self.model).__name__} has {places:,} positions"
                + ("" if self.answers else ", and something is to follow"),
                fix="shorten it",
            )
        room = places - (1 if self.answers else length)
        if asked is not None and asked > room:
            get_logger().info(f"at most {room} tokens are written, not {asked}: the model has {places} positions")
        return min(wanted, room)

    def _generate(self, ids: list[int], options: dict[str, Any], streamer: Any) -> list[list[int]]:
        given = torch.tensor([ids], device=self.model.device)
        pad = self.tokenizer.pad_token_id
        if pad is None:  # pads texts of different length; transformers would do the same, with a message
            pad = self.tokenizer.eos_token_id
        try:
            written = self.model.generate(
                given, attention_mask=torch.ones_like(given), pad_token_id=pad, streamer=streamer, **options
            )
        except ValueError as error:
            raise ConfigError(
                what="the texts cannot be written so",
                why=" ".join(str(error).split()),
                fix="change the option that is named",
            ) from error
        return written.tolist()


class _Shown:
    """A streamer that shows a text while `generate` puts tokens into it."""

    def __init__(self, text_of: Callable[[list[int]], str], show: Show) -> None:
        self.text_of, self.show = text_of, show
        self.ids: list[int] = []
        self.has_begun = False
        self.length = 0  # of what was shown

    def put(self, value: Any) -> None:
        if not self.has_begun:  # the prompt, or the start token of a decoder
            self.has_begun = True
            return
        self.ids += value.flatten().tolist()
        text = self.text_of(self.ids)
        if not text.endswith(_UNFINISHED):
            self._show(text)

    def end(self) -> None:
        self._show(self.text_of(self.ids))

    def _show(self, text: str) -> None:
        if text[self.length :]:
            self.show(text[self.length :])
            self.length = len(text)


def sample_model() -> str:
    """Return the directory of a small language model, which is trained first if it does not exist."""
    if not (Path(SAMPLE_HOME) / "config.json").is_file():
        get_logger().info(f"first a small model is trained: ostinato train {SAMPLE_TASK} --sample")
        run(SAMPLE_TASK, ["--sample", "--output_dir", SAMPLE_HOME])
    return SAMPLE_HOME


def _device(*, use_cpu: bool) -> torch.device:
    found = None if use_cpu else torch.accelerator.current_accelerator(check_available=True)
    return found or torch.device("cpu")


def _check_place(source: str) -> None:
    """Raise for a directory without a model, with a hint where there is one."""
    place = Path(source)
    if not place.is_dir() or (place / "config.json").is_file():
        return
    checkpoint = get_last_checkpoint(source)
    raise ConfigError(
        what=f"there is no model in {source}",
        why="the directory has no config.json" + (", but checkpoints" if checkpoint else ""),
        fix=f"--model_name_or_path {checkpoint}" if checkpoint else "name the --output_dir of a training",
    )


def _check_kind(config: Any, source: str) -> None:
    """Raise for a model that was not trained to generate text."""
    transformers = import_transformers()
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if kind is not None and not kind.can_generate():
            raise ConfigError(
                what=f"the model in {source} writes no texts",
                why=f"it is a {name}",
                fix="name a language model, or one of summarization or translation",
            )
