"""Speech recognition by CTC: a character for every frame of a recording; also with a small adapter for a language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ostinato import ConfigError, DataError, Trainer
from ostinato.logging import get_logger

from .ctc_vocabulary import SpecialTokens, build_tokenizer, build_vocabulary, find_unknown_characters
from .language_adapters import choose_language, init_adapter, load_adapter, save_adapter
from .media.audio_collators import AudioCollator
from .media.audio_recipe import AudioModelArguments
from .media.speech_recipe import SpeechArguments, SpeechRecipe
from .models import import_transformers, load_tokenizer
from .rows import TEST, TRAIN, Split
from .task_arguments import TokenizerArguments, flag

# Options of the config whose defaults are those of transformers' script, for training from scratch and fine-tuning.
_CONFIG_OPTIONS = (
    *("attention_dropout", "activation_dropout", "feat_proj_dropout", "hidden_dropout", "final_dropout", "layerdrop"),
    *("mask_time_prob", "mask_time_length", "mask_feature_prob", "mask_feature_length"),
    *("ctc_loss_reduction", "ctc_zero_infinity", "add_adapter", "adapter_attn_dim"),
)


@dataclass
class CTCArguments(SpeechArguments):
    """The vocabulary and the language."""

    unk_token: str = flag("[UNK]", "A new vocabulary's token for characters that it does not have.")
    pad_token: str = flag("[PAD]", "A new vocabulary's padding, which is also CTC's blank.")
    word_delimiter_token: str = flag("|", "A new vocabulary's token for the space between words.")
    target_language: str | None = flag(
        None, "Train an adapter and a vocabulary for this language (ISO 693-3: tur), and nothing else of the model."
    )


@dataclass
class CTCModelArguments(AudioModelArguments):
    """The model, its vocabulary and its regularization."""

    tokenizer_name: str | None = flag(
        None, "A tokenizer other than the model's, by path or name.", aliases=["--tokenizer_name_or_path"]
    )
    train_tokenizer: bool = flag(False, "Make a vocabulary of the texts, even if the model has a tokenizer.")
    attention_dropout: float = flag(0.0, "Dropout of attention.")
    activation_dropout: float = flag(0.0, "Dropout inside of the feed-forward layers.")
    feat_proj_dropout: float = flag(0.0, "Dropout of the projected features.")
    hidden_dropout: float = flag(0.0, "Dropout of the hidden layers.")
    final_dropout: float = flag(0.0, "Dropout before the output layer.")
    layerdrop: float = flag(0.0, "The probability that a layer is skipped.")
    mask_time_prob: float = flag(0.05, "SpecAugment: the share of frames where masks over time begin.")
    mask_time_length: int = flag(10, "SpecAugment: the length of masks over time.")
    mask_feature_prob: float = flag(0.0, "SpecAugment: the share of features where masks over features begin.")
    mask_feature_length: int = flag(10, "SpecAugment: the length of masks over features.")
    ctc_loss_reduction: str = flag("mean", "How losses of recordings are joined.", choices=["mean", "sum"])
    ctc_zero_infinity: bool = flag(False, "Ignore recordings that are too short for their text.")
    add_adapter: bool = flag(False, "Add convolutions after the encoder that shorten its output.")
    adapter_attn_dim: int = flag(16, "The size of the adapter of --target_language.")


class CTCTrainer(Trainer):
    """Predict ids instead of logits: of each frame the likeliest, and blanks beyond the end of a recording."""

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if logits is None:
            return loss, logits, labels
        ids = (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)
        mask, network = inputs.get("attention_mask"), self.model
        if mask is not None and hasattr(network, "_get_feat_extract_output_lengths"):
            lengths = network._get_feat_extract_output_lengths(mask.sum(-1).to(ids.device))  # type: ignore[operator]
            beyond = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
            ids = ids.masked_fill(beyond, int(network.config.pad_token_id))  # type: ignore[union-attr]
        return loss, ids, labels


class SpeechRecognitionCTC(SpeechRecipe):
    """Recipe that transcribes speech, character by character."""

    name = "speech-recognition-ctc"
    summary = "Recognize speech by CTC, character by character."
    model_class = "AutoModelForCTC"
    arguments_class = CTCArguments
    model_arguments_class = CTCModelArguments
    trainer_class = CTCTrainer

    special: SpecialTokens
    model_arguments: Any

    # ---- model -----------------------------------------------------------------------------------------------

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        extractor, self.model_arguments = super().load_processor(arguments, splits), arguments
        given = self.arguments
        self.special = SpecialTokens(given.unk_token, given.pad_token, given.word_delimiter_token)
        self.tokenizer = self._find_tokenizer(arguments, splits)
        kind = import_transformers().Wav2Vec2Processor
        if type(extractor).__name__ == "SeamlessM4TFeatureExtractor":
            kind = import_transformers().Wav2Vec2BertProcessor
        return kind(feature_extractor=extractor, tokenizer=self.tokenizer)

    def _find_tokenizer(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        """Return the model's tokenizer, or one of the characters of the texts."""
        language = self.arguments.target_language
        given = None if arguments.train_tokenizer else _load_given_tokenizer(arguments)
        if given is not None and language is not None and TRAIN not in splits:
            choose_language(given, language)
        if given is not None and (language is None or TRAIN not in splits):
            return given
        if TRAIN not in splits:
            raise ConfigError(
                what="there is no vocabulary",
                why="the model has no tokenizer, and there are no training rows to make one of",
                fix="name the tokenizer of the trained model: --tokenizer_name DIR",
            )
        with_texts = [split for name, split in splits.items() if not name.startswith(TEST)]
        texts = [text for split in with_texts for text in self.read_texts(split)]
        vocabulary = build_vocabulary(texts, self.special)
        shown = "".join(sorted(token for token in vocabulary if len(token) == 1 and token != self.special.delimiter))
        get_logger().info(f"vocabulary: {len(vocabulary)} tokens, made of the texts: {shown}")
        others = getattr(given, "vocab", {}) if language is not None and getattr(given, "target_lang", None) else {}
        return build_tokenizer(vocabulary, self.special, language, others)

    def prepare_config(self, config: Any) -> None:
        config.vocab_size, config.pad_token_id = len(self.tokenizer), self.tokenizer.pad_token_id
        for name in ("bos_token_id", "eos_token_id"):
            if self.is_new:
                setattr(config, name, getattr(self.tokenizer, name, None))
        if self.training.do_train:
            for name in _CONFIG_OPTIONS:
                if hasattr(config, name) and (name != "adapter_attn_dim" or self.arguments.target_language):
                    setattr(config, name, getattr(self.model_arguments, name))
        super().prepare_config(config)

    def load_model(self, arguments: Any) -> Any:
        if self.arguments.target_language and self.training.do_train and not arguments.ignore_mismatched_sizes:
            arguments.ignore_mismatched_sizes = True  # the output layer is that of another language
        return super().load_model(arguments)

    def prepare_model(self, model: Any) -> None:
        language = self.arguments.target_language
        if language is None:
            super().prepare_model(model)
        elif self.training.do_train:
            init_adapter(model)
        else:
            load_adapter(model, self.model_arguments.model_name_or_path, language)

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        features = self.extract_features(self.open_row(row, purpose), purpose)
        text = self.find_text(row)
        if text is not None:
            features["labels"] = self.tokenizer(text).input_ids
        return features

    def find_bad_texts(self, split: Split) -> Iterator[tuple[int, DataError]]:
        return find_unknown_characters(split, self.text_column, self.read_texts(split), self.tokenizer)

    def build_features(self, split: Split) -> Any:
        if split.name.startswith(TEST):
            return super().build_features(split)
        short = self._find_long_texts(split)
        if short and split.name != TRAIN and not self.model_arguments.ctc_zero_infinity:
            get_logger().info(
                f"{split.source}: eval_loss will be infinite: {split.locate(short[0], self.text_column)} has more "
                "characters than the recording has frames (--ctc_zero_infinity leaves it out of the loss)"
            )
        return super().build_features(self._drop(split, short) if split.name == TRAIN else split)

    def _find_long_texts(self, split: Split) -> list[int]:
        """Return the rows that CTC cannot align: it needs a frame for each character, and one between equal ones."""
        short = []
        for row, text in enumerate(self.read_texts(split)):
            frames = self.count_row_frames(split, row)
            if frames is not None and frames < count_needed_frames(self.tokenizer(text).input_ids):
                short.append(row)
        return short

    def _drop(self, split: Split, short: list[int]) -> Split:
        """Return the other rows."""
        if len(short) == len(split):
            raise DataError(
                what=f"{split.source}: every recording has fewer frames than its text has characters",
                why=f"a frame of the model stands for many samples, of {self.rate} a second",
                fix="use a model with smaller steps, or --sampling_rate of a new model",
            )
        if short:
            get_logger().info(
                f"{split.source}: {len(short):,} of {len(split):,} rows are left out: their texts have more "
                f"characters than the recordings have frames; the first is {split.locate(short[0], self.text_column)}"
            )
        return split.select([row for row in range(len(split)) if row not in set(short)]) if short else split

    def build_collator(self, model: Any) -> AudioCollator:
        return AudioCollator(self.feature_extractor)

    # ---- results ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {"compute_metrics": self.build_metric()}

    def decode_texts(self, ids: np.ndarray, *, are_labels: bool) -> list[str]:
        ids = np.where(ids < 0, self.tokenizer.pad_token_id, ids)
        return [text.strip() for text in self.tokenizer.batch_decode(ids, group_tokens=not are_labels)]

    def write_model_files(self, model: Any, directory: Path) -> None:
        if self.arguments.target_language is not None:
            save_adapter(model, directory, self.arguments.target_language, self.model_arguments.model_name_or_path)


def count_needed_frames(ids: list[int] | Tensor) -> int:
    """Return how many frames CTC needs for some labels.

    >>> count_needed_frames([1, 2, 2, 3])
    5
    """
    return len(ids) + sum(int(one == other) for one, other in zip(ids[1:], ids[:-1], strict=True))


def _load_given_tokenizer(arguments: Any) -> Any:
    """Return the named tokenizer, or the model's; None for a model without one."""
    named = arguments.tokenizer_name or arguments.model_name_or_path
    if named is None:
        return None
    if arguments.tokenizer_name is None and Path(named).is_dir():
        if not (Path(named) / "tokenizer_config.json").is_file() and not (Path(named) / "vocab.json").is_file():
            return None
    try:
        return load_tokenizer(TokenizerArguments(tokenizer_name=named, cache_dir=arguments.cache_dir))
    except ConfigError:
        if arguments.tokenizer_name is not None:
            raise
        return None  # of a model that was only pretrained
