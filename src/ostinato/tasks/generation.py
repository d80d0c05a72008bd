"""Text generation with a trained model: a language model continues a text, an encoder-decoder maps it to another.

generator = TextGenerator.load("runs/clm")
generator.generate("Anna in Riga", GenerationOptions(max_new_tokens=30, do_sample=False))
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
from .languages import find_token_id, is_multilingual
from .models import import_transformers, load_config, load_model, load_tokenizer
from .task_arguments import TokenizerArguments

DEFAULT_NEW_TOKENS = {False: 20, True: 128}  # the defaults of a language model, and of an encoder-decoder
SAMPLE_TASK, SAMPLE_DIR, SAMPLE_PROMPT = "clm", "runs/clm", "Anna in Riga"
_PARTIAL_CHARACTER = "\ufffd"  # the output of a tokenizer for half a character
Show = Callable[[str], None]


@dataclass(frozen=True)
class GenerationOptions:
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

    def build_arguments(self, *, is_encoder_decoder: bool) -> dict[str, Any]:
        """Return the arguments of transformers' `generate`, for an encoder-decoder or a language model.

        >>> GenerationOptions(num_beams=4).build_arguments(is_encoder_decoder=False)
        {'max_new_tokens': 20, 'do_sample': False, 'num_beams': 4, 'num_return_sequences': 1}
        """
        do_sample = self.do_sample
        if do_sample is None:
            do_sample = not is_encoder_decoder and (self.num_beams or 1) == 1
        options: dict[str, Any] = {
            "max_new_tokens": self.max_new_tokens or DEFAULT_NEW_TOKENS[is_encoder_decoder],
            "do_sample": do_sample,
        }
        sampling = {"temperature": (self.temperature, 1.0), "top_k": (self.k, 0), "top_p": (self.p, 0.9)}
        if do_sample:
            options |= {name: default if value is None else value for name, (value, default) in sampling.items()}
        elif any(value is not None for value, _ in sampling.values()):
            get_logger().info("--temperature, --k and --p have no effect without --do_sample")
        others = {"num_beams": self.num_beams, "repetition_penalty": self.repetition_penalty}
        options |= {name: value for name, value in others.items() if value is not None}
        return {**options, "num_return_sequences": self.num_return_sequences}


class TextGenerator:
    """A model with its tokenizer, on its device."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.is_encoder_decoder = bool(model.config.is_encoder_decoder)

    @classmethod
    def load(
        cls, source: str, tokenizer: str | None = None, *, use_cpu: bool = False, fp16: bool = False
    ) -> TextGenerator:
        """Load the model of a directory, such as a recipe's output_dir, or of a name on the hub."""
        arguments = TokenizerArguments(model_name_or_path=source, tokenizer_name=tokenizer)
        _check_directory(source)
        config = load_config(arguments)
        _check_kind(config, source)
        kind = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
        model, device = load_model(kind, arguments, config), _choose_device(use_cpu=use_cpu)
        if fp16 and device.type == "cpu":
            get_logger().info("--fp16 has no effect on a CPU")
        elif fp16:
            model = model.half()
        return cls(model.to(device), load_tokenizer(arguments))

    def set_languages(self, source: str | None, target: str | None) -> None:
        """Set the source and target language of a multilingual model; None leaves it as it was trained."""
        if not is_multilingual(self.tokenizer):
            raise ConfigError(
                what="--source_lang and --target_lang",
                why=f"{type(self.tokenizer).__name__} is not multilingual",
                fix="remove them; a model like T5 expects its task in --prefix",
            )
        if source is not None:
            find_token_id(self.tokenizer, source, "--source_lang")
            self.tokenizer.src_lang = source
        if target is not None:
            start = find_token_id(self.tokenizer, target, "--target_lang")
            self.model.generation_config.forced_bos_token_id = start

    def generate(self, prompt: str, options: GenerationOptions, show: Show | None = None) -> list[str]:
        """Return the generated texts, without the prompt. `show` receives a text piece by piece.

        The same seed (`set_seed`) makes the same texts.
        """
        arguments = options.build_arguments(is_encoder_decoder=self.is_encoder_decoder)
        if show is not None and (arguments["num_return_sequences"] > 1 or arguments.get("num_beams", 1) > 1):
            raise ConfigError(
                what="--stream with several texts at once",
                why="--num_beams and --num_return_sequences generate several texts in parallel",
                fix="remove --stream, or --num_beams and --num_return_sequences",
            )
        ids = self._tokenize(self._get_prefix(options) + prompt)
        limit = self._limit_new_tokens(len(ids), options.max_new_tokens, arguments["max_new_tokens"])
        arguments["max_new_tokens"] = limit
        prompt_text = self.tokenizer.decode(ids, skip_special_tokens=True) if not self.is_encoder_decoder else ""

        def decode(new: list[int]) -> str:
            whole = self.tokenizer.decode(new if self.is_encoder_decoder else [*ids, *new], skip_special_tokens=True)
            text = whole[len(prompt_text) :]
            return text if options.stop_token is None else text.partition(options.stop_token)[0]

        streamer = None if show is None else _TextStreamer(decode, show)
        rows = self._generate(ids, arguments, streamer)
        return [decode(row if self.is_encoder_decoder else row[len(ids) :]) for row in rows]

    def _get_prefix(self, options: GenerationOptions) -> str:
        if options.prefix is not None:
            return options.prefix
        known = {
            task.get("prefix") for task in (getattr(self.model.config, "task_specific_params", None) or {}).values()
        }
        if not self.is_encoder_decoder or len(known) != 1:  # with several tasks it is not known which is meant
            return ""
        return known.pop() or ""

    def _tokenize(self, text: str) -> list[int]:
        ids = self.tokenizer(text)["input_ids"]
        ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None}
        while not self.is_encoder_decoder and ids and ids[-1] in ends:
            ids = ids[:-1]  # a text that has ended is not continued
        return ids

    def _limit_new_tokens(self, length: int, requested: int | None, wanted: int) -> int:
        """Return how many tokens may be generated after a prompt of this length."""
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if not isinstance(positions, int) or positions <= 0:  # relative positions have no limit
            return wanted
        if length > positions - (0 if self.is_encoder_decoder else 1):
            raise DataError(
                what=f"the prompt is too long: {length:,} tokens",
                why=f"{type(self.model).__name__} has {positions:,} positions"
                + ("" if self.is_encoder_decoder else ", and at least one must remain for new tokens"),
                fix="shorten the prompt",
            )
        remaining = positions - (1 if self.is_encoder_decoder else length)
        if requested is not None and requested > remaining:
            get_logger().info(
                f"at most {remaining} tokens are generated, not {requested}: the model has {positions} positions"
            )
        return min(wanted, remaining)

    def _generate(self, ids: list[int], arguments: dict[str, Any], streamer: Any) -> list[list[int]]:
        given = torch.tensor([ids], device=self.model.device)
        pad = self.tokenizer.pad_token_id
        if pad is None:  # pads texts of different length; transformers would do the same, with a message
            pad = self.tokenizer.eos_token_id
        try:
            generated = self.model.generate(
                given, attention_mask=torch.ones_like(given), pad_token_id=pad, streamer=streamer, **arguments
            )
        except ValueError as error:
            raise ConfigError(
                what="text cannot be generated with these options",
                why=" ".join(str(error).split()),
                fix="change the option named above",
            ) from error
        return generated.tolist()


class _TextStreamer:
    """A streamer that shows a text while `generate` puts tokens into it."""

    def __init__(self, decode: Callable[[list[int]], str], show: Show) -> None:
        self.decode, self.show = decode, show
        self.ids: list[int] = []
        self.has_begun = False
        self.length = 0  # of what was shown

    def put(self, value: Any) -> None:
        if not self.has_begun:  # the prompt, or the start token of a decoder
            self.has_begun = True
            return
        self.ids += value.flatten().tolist()
        text = self.decode(self.ids)
        if not text.endswith(_PARTIAL_CHARACTER):
            self._show(text)

    def end(self) -> None:
        self._show(self.decode(self.ids))

    def _show(self, text: str) -> None:
        if text[self.length :]:
            self.show(text[self.length :])
            self.length = len(text)


def prepare_sample_model() -> str:
    """Return the directory of a small language model, which is trained first if it does not exist."""
    if not (Path(SAMPLE_DIR) / "config.json").is_file():
        get_logger().info(f"training a small model first: ostinato train {SAMPLE_TASK} --sample")
        run(SAMPLE_TASK, ["--sample", "--output_dir", SAMPLE_DIR])
    return SAMPLE_DIR


def _choose_device(*, use_cpu: bool) -> torch.device:
    found = None if use_cpu else torch.accelerator.current_accelerator(check_available=True)
    return found or torch.device("cpu")


def _check_directory(source: str) -> None:
    """Raise for a directory without a model, with a hint where there is one."""
    directory = Path(source)
    if not directory.is_dir() or (directory / "config.json").is_file():
        return
    checkpoint = get_last_checkpoint(source)
    raise ConfigError(
        what=f"there is no model in {source}",
        why="the directory has no config.json" + (", only checkpoints" if checkpoint else ""),
        fix=f"--model_name_or_path {checkpoint}" if checkpoint else "use the --output_dir of a training run",
    )


def _check_kind(config: Any, source: str) -> None:
    """Raise for a model that was not trained to generate text."""
    transformers = import_transformers()
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if kind is not None and not kind.can_generate():
            raise ConfigError(
                what=f"the model in {source} cannot generate text",
                why=f"it is a {name}",
                fix="use a language model, or one trained for summarization or translation",
            )
