"""Speech recognition by an encoder and a decoder that writes a text: Whisper and others of its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError, DataError, Seq2SeqTrainer, Seq2SeqTrainingArguments
from ostinato.logging import get_logger

from .media.audio_collators import IGNORE_INDEX, AudioCollator
from .media.audio_recipe import AudioModelArguments
from .media.speech_recipe import SpeechArguments, SpeechRecipe
from .models import fit_config_to_tokenizer, load_tokenizer, set_pad_token
from .rows import TRAIN, Split
from .task_arguments import TokenizerArguments, flag
from .tokenizers import choose_style, train_tokenizer


@dataclass
class Seq2SeqSpeechArguments(SpeechArguments):
    """The language, and what is written of it."""

    language: str | None = flag(None, "The language that is spoken, for a multilingual model: german, de.")
    task: str = flag("transcribe", "What a multilingual model writes.", choices=["transcribe", "translate"])
    num_beams: int | None = flag(None, "The number of beams. By default that of the model.")


@dataclass
class Seq2SeqSpeechModelArguments(AudioModelArguments, TokenizerArguments):
    """The model, what it hears and its tokenizer."""

    freeze_encoder: bool = flag(False, "Train the decoder alone.")
    apply_spec_augment: bool = flag(False, "Training: mask the spectrogram as the config's mask_time_prob says.")
    forced_decoder_ids: str | None = flag(
        None, "Pairs of a position and a token that generated texts begin with, as JSON. Older than --language."
    )
    suppress_tokens: list[int] | None = flag(None, "Tokens that are never generated.")


class SpeechProcessor:
    """A feature extractor and a tokenizer, saved together."""

    def __init__(self, feature_extractor: Any, tokenizer: Any) -> None:
        self.feature_extractor, self.tokenizer = feature_extractor, tokenizer
        self.pad_token_id, self.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id

    def save_pretrained(self, directory: str, **options: Any) -> None:
        """Write the files of both into a directory."""
        self.feature_extractor.save_pretrained(directory, **options)
        self.tokenizer.save_pretrained(directory, **options)


class SpeechRecognitionSeq2Seq(SpeechRecipe):
    """Recipe that transcribes speech, token by token."""

    name = "speech-recognition-seq2seq"
    summary = "Recognize speech by an encoder and a decoder, such as Whisper's."
    model_class = "AutoModelForSpeechSeq2Seq"
    arguments_class = Seq2SeqSpeechArguments
    model_arguments_class = Seq2SeqSpeechModelArguments
    training_class = Seq2SeqTrainingArguments
    trainer_class = Seq2SeqTrainer
    defaults = {"predict_with_generate": True}

    model_arguments: Any

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        training.generation_num_beams = arguments.num_beams or training.generation_num_beams
        if training.do_predict and not training.predict_with_generate:
            raise ConfigError(
                what="--do_predict with --predict_with_generate false",
                why="predictions would be the logits of known texts, not generated texts",
                fix="leave out --predict_with_generate false",
            )

    # ---- model -----------------------------------------------------------------------------------------------

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        extractor, self.model_arguments = super().load_processor(arguments, splits), arguments
        self.tokenizer = self._train_tokenizer(splits) if arguments.train_tokenizer else load_tokenizer(arguments)
        if self.is_new:
            fit_config_to_tokenizer(self.config, self.tokenizer)
            self.config.decoder_start_token_id = self.tokenizer.bos_token_id or self.tokenizer.pad_token_id
            self.config.begin_suppress_tokens = self.config.suppress_tokens = self.config.forced_eos_token_id = None
        set_pad_token(self.tokenizer, self.config, arguments, is_needed=True)
        return SpeechProcessor(extractor, self.tokenizer)

    def _train_tokenizer(self, splits: Mapping[str, Split]) -> Any:
        if TRAIN not in splits:
            raise ConfigError(
                what="--train_tokenizer without --do_train",
                why="the tokenizer is trained on the training rows",
                fix="use the tokenizer of the trained model: --tokenizer_name DIR",
            )
        texts = self.read_texts(splits[TRAIN])
        style = choose_style(self.config, self.model_class)
        tokenizer = train_tokenizer(texts, self.model_arguments.vocab_size, style)
        get_logger().info(f"tokenizer: trained on {splits[TRAIN].source}, {len(tokenizer):,} pieces")
        return tokenizer

    def prepare_config(self, config: Any) -> None:
        if self.model_arguments.apply_spec_augment and self.training.do_train:
            config.apply_spec_augment = True
            if not getattr(config, "mask_time_prob", 0) and not getattr(config, "mask_feature_prob", 0):
                raise ConfigError(
                    what="--apply_spec_augment without masks",
                    why="the config's mask_time_prob and mask_feature_prob are 0",
                    fix="add --config_overrides mask_time_prob=0.05,mask_feature_prob=0.05",
                )
        super().prepare_config(config)

    def prepare_model(self, model: Any) -> None:
        super().prepare_model(model)
        if model.config.decoder_start_token_id is None:
            raise ConfigError(
                what=f"{type(model).__name__} has no start token for generated texts",
                why="its config has no decoder_start_token_id",
                fix="add --config_overrides decoder_start_token_id=ID",
            )
        if self.model_arguments.freeze_encoder:
            freeze_encoder(model)
        if self.is_new and self.training.generation_max_length is None:
            model.generation_config.max_length = model.config.max_target_positions
        self._set_generation(model.generation_config)

    def _set_generation(self, generation: Any) -> None:
        """Make generated texts begin with language and task, as the labels do."""
        arguments, given = self.arguments, self.model_arguments
        generation._from_model_config = False  # it is saved as it is, not made anew of the model's config
        if given.suppress_tokens is not None:
            generation.suppress_tokens = given.suppress_tokens
        if given.forced_decoder_ids is not None:
            generation.forced_decoder_ids = parse_forced_ids(given.forced_decoder_ids)
        is_multilingual = bool(getattr(generation, "is_multilingual", False))
        if arguments.language is None:
            if is_multilingual:
                get_logger().info("no --language is named: the model finds out what is spoken, for each recording")
            return
        if not is_multilingual or not hasattr(self.tokenizer, "set_prefix_tokens"):
            raise ConfigError(
                what=f"--language {arguments.language} with a model of one language",
                why=f"{given.source} has no tokens for languages",
                fix="leave out --language and --task, or use a multilingual model",
            )
        self.tokenizer.set_prefix_tokens(language=arguments.language, task=arguments.task)
        generation.language, generation.task, generation.forced_decoder_ids = arguments.language, arguments.task, None

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        is_masked = purpose == TRAIN and getattr(self.config, "apply_spec_augment", False)
        options = {"return_attention_mask": True} if is_masked else {}
        features = self.extract_features(self.open_row(row, purpose), purpose, **options)
        text = self.find_text(row)
        if text is not None:
            features["labels"] = self.tokenizer(text).input_ids
        return features

    def build_features(self, split: Split) -> Any:
        seconds = getattr(self.feature_extractor, "chunk_length", None) or math.inf
        longer = sum(info is not None and info.seconds > seconds for info in self.headers[split.name].values())
        if longer:
            get_logger().info(f"{split.source}: {longer:,} recordings are cut to {seconds} s: the model reads no more")
        return super().build_features(split)

    def find_bad_texts(self, split: Split) -> Iterator[tuple[int, DataError]]:
        most = getattr(self.config, "max_target_positions", None) or math.inf
        for row, text in enumerate(self.read_texts(split)):
            tokens = len(self.tokenizer(text).input_ids)
            if tokens > most:
                what = f"the text has {tokens} tokens, the decoder {most} positions"
                fix = "shorten the text, or cut the recording into parts"
                yield row, split.build_error(row, self.text_column, what, fix)

    def build_collator(self, model: Any) -> AudioCollator:
        return AudioCollator(self.feature_extractor, drop_first=model.config.decoder_start_token_id)

    # ---- results ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        if self.training.predict_with_generate:
            return {"compute_metrics": self.build_metric()}
        get_logger().info("only the loss is measured: error rates need generated texts (--predict_with_generate)")
        return {}

    def decode_texts(self, ids: np.ndarray, *, are_labels: bool) -> list[str]:
        ids = np.where(ids == IGNORE_INDEX, self.tokenizer.pad_token_id, ids)
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]


def freeze_encoder(model: Any) -> None:
    """Exclude the encoder of a model from training."""
    encoder = model.get_encoder()
    for weight in encoder.parameters():
        weight.requires_grad = False
    encoder.gradient_checkpointing = False
    get_logger().info("the encoder is not trained (--freeze_encoder)")


def parse_forced_ids(given: str) -> list[list[int]]:
    """Return pairs of a position and a token.

    >>> parse_forced_ids("[[1, 50261], [2, 50359]]")
    [[1, 50261], [2, 50359]]
    """
    try:
        pairs = json.loads(given)
        return [[int(place), int(token)] for place, token in pairs]
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"--forced_decoder_ids {given}", str(error), "write pairs: '[[1, 50261]]'; or use --language"
        ) from None
