"""Pretraining on speech alone: the model distinguishes the quantized code of a masked frame from those of others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ostinato import ConfigError, Trainer, TrainerCallback
from ostinato.logging import get_logger

from .media.audio_augmentation import take_random_window
from .media.audio_pictures import draw_recording
from .media.audio_recipe import AudioArguments, AudioModelArguments, AudioRecipe
from .media.frame_lengths import count_frames
from .media.frame_masks import MaskedCollator, draw_mask, draw_negatives
from .media.gallery import Picture, write_gallery
from .rows import TRAIN, VALIDATION, Split
from .task_arguments import flag

_SHOWN_PICTURES = 8


@dataclass
class SpeechPretrainingArguments(AudioArguments):
    """The length of recordings, and the temperature of the codes."""

    min_duration_in_seconds: float = flag(3.0, "Leave out shorter recordings.")
    max_duration_in_seconds: float = flag(
        5.0, "Training takes a random window of this length from longer recordings, evaluation their beginning."
    )
    max_gumbel_temperature: float = flag(2.0, "The temperature at which codes are chosen in the first step.")
    min_gumbel_temperature: float = flag(0.5, "The lowest temperature.")
    gumbel_temperature_decay: float = flag(0.999995, "The temperature is multiplied by this after each step.")


@dataclass
class SpeechPretrainingModelArguments(AudioModelArguments):
    """The model, and its masks."""

    mask_time_prob: float | None = flag(None, "The share of frames that is masked. By default that of the config.")
    mask_time_length: int | None = flag(None, "The length of masks in frames. By default that of the config.")


class GumbelTemperatureCallback(TrainerCallback):
    """Set the temperature of the quantizer before each step, by the number of the step alone."""

    def __init__(self, highest: float, lowest: float, decay: float) -> None:
        self.highest, self.lowest, self.decay = highest, lowest, decay

    def compute_temperature(self, step: int) -> float:
        """Return the temperature after so many steps.

        >>> GumbelTemperatureCallback(2.0, 0.5, 0.5).compute_temperature(1)
        1.0
        """
        return max(self.highest * self.decay**step, self.lowest)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the temperature."""
        model: Any = kwargs["model"]
        getattr(model, "module", model).set_gumbel_temperature(self.compute_temperature(state.global_step))


class PretrainingTrainer(Trainer):
    """Divide the loss by the masked frames of the whole step, and log what it is made of."""

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        inputs = dict(inputs)
        frames = inputs.pop("frame_counts").sum()
        masked = (inputs["labels"] != -100).sum()
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.track("contrastive_loss", outputs.contrastive_loss.detach().sum() / masked, masked)
        self.track("diversity_loss", outputs.diversity_loss.detach() / masked, masked)
        self.track("code_perplexity", outputs.codevector_perplexity.detach(), masked)
        self.track("masked_share", masked / frames, frames)
        if model.training:
            self.track("gumbel_temperature", self.model.quantizer.temperature)  # type: ignore[union-attr, arg-type]
        return (loss, outputs) if return_outputs else loss


def compute_share(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Return a batch's share of the loss of a step: the model's own is a sum over masked frames."""
    return outputs.loss / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


class SpeechPretraining(AudioRecipe):
    """Recipe that learns to represent speech from recordings alone."""

    name = "speech-pretraining"
    summary = "Pretrain a model of speech on recordings without texts."
    model_class = "AutoModelForPreTraining"
    arguments_class = SpeechPretrainingArguments
    model_arguments_class = SpeechPretrainingModelArguments
    trainer_class = PretrainingTrainer
    defaults = {"remove_unused_columns": False, "prediction_loss_only": True, "label_names": ["labels"]}

    model_arguments: Any

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        if training.do_predict:
            raise ConfigError("--do_predict has nothing to predict", "recordings have no labels", "leave it out")

    def get_length_limits(self) -> tuple[float, float]:
        return self.arguments.min_duration_in_seconds, float("inf")

    # ---- model -----------------------------------------------------------------------------------------------

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        extractor, self.model_arguments = super().load_processor(arguments, splits), arguments
        extractor.return_attention_mask = self.config.feat_extract_norm == "layer"
        return extractor

    def prepare_config(self, config: Any) -> None:
        for name in ("mask_time_prob", "mask_time_length"):
            value = getattr(self.model_arguments, name)
            if value is not None:
                setattr(config, name, value)
        if not config.apply_spec_augment:
            config.apply_spec_augment = True  # else the model would ignore its masks
        headers = [info for some in self.headers.values() for info in some.values() if info is not None]
        shortest = min((info.seconds for info in headers), default=self.shortest_window)
        shortest = min(shortest, self.shortest_window)
        frames = count_frames(config, int(shortest * (self.rate or 1))) or 0
        if frames < 2 * config.mask_time_length:
            shorter = max(2, frames // 4)
            get_logger().info(
                f"mask_time_length is {shorter} instead of {config.mask_time_length}: "
                f"the shortest recording has {frames} frames"
            )
            config.mask_time_length = shorter

    def load_model(self, arguments: Any) -> Any:
        if not hasattr(self.config, "num_codevectors_per_group"):
            raise ConfigError(
                what=f"a model of type {self.config.model_type!r} cannot be pretrained here",
                why="it has no codes to tell apart",
                fix="use --model_type wav2vec2 or wav2vec2-conformer",
            )
        return super().load_model(arguments)

    def prepare_model(self, model: Any) -> None:
        super().prepare_model(model)
        model.loss_type = "ForPreTraining"  # labels are not of a next frame: all of them are counted

    @property
    def shortest_window(self) -> float:
        return self.arguments.max_duration_in_seconds

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        samples, length = self.open_row(row, purpose), round(self.arguments.max_duration_in_seconds * (self.rate or 1))
        samples = take_random_window(samples, length) if purpose == TRAIN else samples[:length]
        features = self.extract_features(samples, purpose)
        # In evaluation a recording has the same masks each time.
        numbers: Any = np.random if purpose == TRAIN else np.random.RandomState(zlib.crc32(samples.tobytes()))
        config = self.config
        frames = count_frames(config, len(samples)) or 0
        features["mask"] = draw_mask(frames, config.mask_time_prob, config.mask_time_length, numbers)
        features["negatives"] = draw_negatives(features["mask"], config.num_negatives, numbers)
        return features

    def build_collator(self, model: Any) -> MaskedCollator:
        return MaskedCollator(self.feature_extractor)

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        given = self.arguments
        temperature = GumbelTemperatureCallback(
            given.max_gumbel_temperature, given.min_gumbel_temperature, given.gumbel_temperature_decay
        )
        return {"compute_loss_func": compute_share, "callbacks": [temperature]}

    def write_evaluation_files(self, rows: Any, directory: Path) -> None:
        """Draw a few of the recordings."""
        pictures = []
        for number in range(min(_SHOWN_PICTURES, len(rows))):
            samples = self.open_row(rows[number], VALIDATION)
            seconds = f"{len(samples) / (self.rate or 1):.1f} s"
            pictures.append(Picture(draw_recording(samples, self.rate or 1), self.find_file(rows[number]), seconds))
        write_gallery(directory, "recordings", "Recordings", pictures)

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "feature-extraction", "tags": ["speech-pretraining"]}
