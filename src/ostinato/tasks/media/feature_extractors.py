"""Feature extractors of transformers: the model's own, or a new one that fits the config of a new model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ostinato import ConfigError

from ..models import build_hub_arguments, import_transformers, load_pretrained
from ..task_arguments import ModelArguments

Options = Mapping[str, Any]


def load_feature_extractor(arguments: ModelArguments, config: Any, named: str | None, rate: int | None) -> Any:
    """Return the named feature extractor, that of the model, or a new one for the config.

    Args:
        arguments: Those of the model.
        config: The model's config.
        named: A directory or a name, if not the model's.
        rate: The sampling rate of a new one.
    """
    source = named or arguments.model_name_or_path
    if source is None:
        return build_feature_extractor(config, rate)
    kind = import_transformers().AutoFeatureExtractor
    extractor = load_pretrained(kind, source, "feature extractor", **build_hub_arguments(arguments))
    if rate is not None and rate != extractor.sampling_rate:
        raise ConfigError(
            what=f"--sampling_rate {rate}, but the model takes {extractor.sampling_rate} Hz",
            why=f"the feature extractor of {source} was made for that rate",
            fix="leave out --sampling_rate: recordings are resampled",
        )
    return extractor


def build_feature_extractor(config: Any, rate: int | None = None) -> Any:
    """Return a new feature extractor whose output a new model of this config takes."""
    name = _OTHER_KINDS.get(config.model_type)
    kind = getattr(import_transformers(), name) if name is not None else _find_kind(config)
    options = dict(_OPTIONS.get(config.model_type, _get_no_options)(config, rate))
    if getattr(config, "feat_extract_norm", None) is not None:
        options["return_attention_mask"] = config.feat_extract_norm == "layer"
    if rate is not None:
        options["sampling_rate"] = rate
    return kind(**options)


def _find_kind(config: Any) -> Any:
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING  # noqa: PLC0415

    try:
        return FEATURE_EXTRACTOR_MAPPING[type(config)]
    except KeyError:
        raise ConfigError(
            what=f"a model of type {config.model_type!r} does not read sound",
            why="transformers has no feature extractor for it",
            fix="use a model of sound: --model_type wav2vec2, hubert, audio-spectrogram-transformer, whisper, …",
        ) from None


# ---- options that follow from a config ------------------------------------------------------------------------------

_OTHER_KINDS = {"wav2vec2-bert": "SeamlessM4TFeatureExtractor"}  # transformers' own table names one of raw samples


def _get_no_options(config: Any, rate: int | None) -> Options:
    return {}


def _get_spectrogram_options(config: Any, rate: int | None) -> Options:
    return {"num_mel_bins": config.num_mel_bins, "max_length": config.max_length}


def _get_whisper_options(config: Any, rate: int | None) -> Options:
    """The encoder takes exactly two frames of 10 ms for each of its positions."""
    if rate not in (None, 16000):
        raise ConfigError(
            what=f"--sampling_rate {rate} with Whisper",
            why="its spectrograms reach up to 8000 Hz, which needs 16000 samples a second",
            fix="leave out --sampling_rate: recordings are resampled",
        )
    seconds, rest = divmod(config.max_source_positions, 50)
    if rest or not seconds:
        raise ConfigError(
            what=f"max_source_positions={config.max_source_positions} is no whole number of seconds",
            why="Whisper reads windows of whole seconds, at 50 positions a second",
            fix=f"--config_overrides max_source_positions={50 * max(1, round(config.max_source_positions / 50))}",
        )
    return {"feature_size": config.num_mel_bins, "chunk_length": seconds}


_OPTIONS: dict[str, Callable[[Any, int | None], Options]] = {
    "audio-spectrogram-transformer": _get_spectrogram_options,
    "whisper": _get_whisper_options,
    "speech_to_text": lambda config, rate: {
        "feature_size": config.input_feat_per_channel,
        "num_mel_bins": config.input_feat_per_channel,
    },
    "wav2vec2-bert": lambda config, rate: {"feature_size": config.feature_projection_input_dim // 2, "stride": 2},
}
