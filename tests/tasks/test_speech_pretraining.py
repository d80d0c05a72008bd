"""Pretraining on speech: the losses of a plain program of transformers, masks, the temperature, uneven batches."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.media.frame_masks import MaskedCollator, draw_mask, draw_negatives
from ostinato.tasks.samples.tones import RATE, build_digits, save_recording, synthesize_speech
from tests.support.apis import guest
from tests.support.real_data import on_real_data, read_table
from tests.support.task_runs import assert_same_run, plain_arguments, run_apart, write_rows

soundfile = pytest.importorskip("soundfile")
TASK = "speech-pretraining"
SHORT = [
    *("--num_train_epochs", "1", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false", "--min_duration_in_seconds", "0.1"),
]


def record(name: str, count: int) -> str:
    numbers, rows = random.Random(0), []
    for number in range(count):
        file = f"{name}/{number:03}.wav"
        save_recording(synthesize_speech(build_digits(1, numbers), numbers), Path(file))
        rows.append({"audio": file})
    return write_rows(Path(f"{name}.jsonl"), rows)


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small model and its feature extractor."""
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8),
        conv_kernel=(16, 8), conv_stride=(8, 8), num_feat_extract_layers=2, feat_extract_norm="layer",
        do_stable_layer_norm=True, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, codevector_dim=8,
        proj_codevector_dim=8, num_codevectors_per_group=8, num_negatives=6, mask_time_prob=0.4, mask_time_length=3,
    )  # fmt: skip
    transformers.set_seed(3)
    transformers.Wav2Vec2ForPreTraining(config).save_pretrained(shelf / "model")
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=True)
    extractor.save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample", "--num_train_epochs", "3", "--eval_strategy", "no"])
    assert finished.sample is not None
    assert finished.metrics["eval_contrastive_loss"] < finished.sample.baseline - 0.3
    assert finished.metrics["eval_code_perplexity"] > 4  # the codes have not become one
    assert "data:image/png;base64," in Path(f"runs/{TASK}/report.html").read_text()


def test_masks_and_negatives() -> None:
    numbers = np.random.RandomState(0)
    shares = []
    for frames in (5, 40, 200, 1000):
        mask = draw_mask(frames, 0.5, 5, numbers)
        negatives = draw_negatives(mask, 20, numbers)
        shares.append(mask.mean())
        assert mask.any()
        masked = np.flatnonzero(mask)
        assert not negatives[~mask].any()
        assert np.isin(negatives[mask], masked).all()
        assert not (negatives[mask] == masked[:, None]).any()  # never the frame itself
        if frames == 1000:
            drawn = np.bincount(negatives[mask].ravel(), minlength=frames)[masked]
            assert (drawn > 0).all() and drawn.max() < 60  # 20 expected: all are drawn, none much more than others
    assert 0.3 < shares[-1] < 0.5  # spans overlap
    theirs = transformers.models.wav2vec2.modeling_wav2vec2._compute_mask_indices
    np.random.seed(0)
    assert shares[-1] == pytest.approx(theirs((50, 1000), 0.5, 5).mean(), abs=0.04)


def plain_program(model: str, accumulation: int) -> Any:
    """What somebody who knows transformers would write; rows, with their masks, are read by the function given."""
    transformers.set_seed(7)
    network = transformers.Wav2Vec2ForPreTraining.from_pretrained(model)
    network.freeze_feature_encoder()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
    collate = MaskedCollator(extractor)

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> dict[str, Any]:
            samples = soundfile.read(f"train/{index:03}.wav", dtype="float32")[0]
            made = {
                name: value[0] for name, value in extractor(samples, sampling_rate=RATE, return_tensors="np").items()
            }
            frames = int(network._get_feat_extract_output_lengths(len(samples)))
            mask = draw_mask(frames, 0.4, 3, np.random)
            return {**made, "mask": mask, "negatives": draw_negatives(mask, 6, np.random)}

    def drop_counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = collate(rows)
        del batch["frame_counts"]
        return batch

    class Temperature(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            network.set_gumbel_temperature(max(2.0 * 0.9**state.global_step, 0.5))

    class Trainer(transformers.Trainer):
        def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
            return sum(batch["mask_time_indices"].sum() for batch in batch_samples)

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
            return model(**inputs).loss / num_items_in_batch

    with guest("transformers"):
        trainer = Trainer(
            model=network,
            args=plain_arguments(
                1e-3, num_train_epochs=1, remove_unused_columns=False, gradient_accumulation_steps=accumulation,
                per_device_train_batch_size=8 // accumulation,
            ),
            train_dataset=Rows(),
            data_collator=drop_counts,
            callbacks=[Temperature()],
        )  # fmt: skip
        trainer.model_accepts_loss_kwargs = True
        trainer.train()
    return trainer


MEASURED = ("contrastive_loss", "diversity_loss", "code_perplexity", "masked_share", "gumbel_temperature")


@pytest.mark.parametrize("accumulation", [1, 4])
def test_losses_and_weights_are_those_of_a_plain_program(model: str, accumulation: int) -> None:
    compare(model, record("train", 20), accumulation)


@on_real_data
def test_losses_on_speech_are_those_of_a_plain_program(model: str) -> None:
    rows = []
    Path("train").mkdir()
    for number, row in enumerate(read_table("audio-classification/fsdd-train")[::120]):
        shutil.copy(row["file"], f"train/{number:03}.wav")
        rows.append({"audio": f"train/{number:03}.wav"})
    compare(model, write_rows(Path("train.jsonl"), rows), accumulation=2)


def compare(model: str, train: str, accumulation: int) -> None:
    words = ["--model_name_or_path", model, "--train_file", train, "--do_train", *SHORT]
    words += ["--train_val_split", "0", "--gumbel_temperature_decay", "0.9", "--isolate_rng", "false"]
    words += ["--gradient_accumulation_steps", str(accumulation)]
    finished = run(TASK, [*words, "--per_device_train_batch_size", str(8 // accumulation)])
    theirs = plain_program(model, accumulation)
    logs = [log for log in finished.trainer.state.log_history if "loss" in log]
    assert [log["gumbel_temperature"] for log in logs] == pytest.approx([2.0, 1.8, 1.62])
    for log in logs:
        assert 0.1 < log["masked_share"] < 0.4
        assert 1 <= log["code_perplexity"] <= 16
        parts = log["contrastive_loss"] + 0.1 * log["diversity_loss"]
        assert parts == pytest.approx(log["loss"], rel=1e-5)
        for name in MEASURED:
            del log[name]
    assert_same_run(finished.trainer, theirs)


# Codes are chosen without noise, which every batch would draw anew.
NOISELESS = """
import sys
import torch
from ostinato.tasks import run

def choose_codes(scores, tau, hard):
    soft = torch.softmax(scores / tau, dim=-1)
    chosen = torch.nn.functional.one_hot(soft.argmax(dim=-1), soft.shape[-1])
    return chosen - soft.detach() + soft

torch.nn.functional.gumbel_softmax = choose_codes
run("speech-pretraining", sys.argv[1:])
"""


def test_processes_and_accumulation_follow_one_batch(model: str, shelf: Path) -> None:
    """Gradients are divided by the masked frames of the whole step, of which every part has another number."""
    # The diversity loss looks at the codes of a batch together: parts of it have another one.
    config = transformers.AutoConfig.from_pretrained(model, diversity_loss_weight=0.0, layerdrop=0.0)
    for name in [name for name in vars(config) if name.endswith("dropout")]:
        setattr(config, name, 0.0)
    transformers.Wav2Vec2ForPreTraining.from_pretrained(model, config=config).save_pretrained("fixed")
    shutil.copy(Path(model, "preprocessor_config.json"), "fixed")
    words = ["--model_name_or_path", "fixed", "--train_file", record("train", 20), "--do_train", *SHORT]
    words += ["--train_val_split", "0", "--use_cpu", "--max_duration_in_seconds", "0.5", "--augment_gain_db", "6"]
    imports = ("transformers.models.wav2vec2", "ostinato.tasks.speech_pretraining")
    ways = {"one": (8, 1, 1), "accumulated": (2, 4, 1), "by two": (2, 2, 2)}
    for name, (batch, accumulation, processes) in ways.items():
        more = ["--output_dir", name, "--per_device_train_batch_size", str(batch)]
        more += ["--gradient_accumulation_steps", str(accumulation)]
        done = run_apart(NOISELESS, [*words, *more], shelf, imports, processes)
        assert done.returncode == 0, done.stderr
    logs = {name: json.loads(Path(name, "trainer_state.json").read_text())["log_history"][:-1] for name in ways}
    weights = {name: load_file(f"{name}/model.safetensors") for name in ways}
    for name in ("accumulated", "by two"):
        for log, expected in zip(logs[name], logs["one"], strict=True):
            for value in ("loss", "grad_norm", "contrastive_loss", "masked_share"):
                assert log[value] == pytest.approx(expected[value], rel=1e-4)
        torch.testing.assert_close(weights[name], weights["one"], atol=1e-5, rtol=1e-4)


def test_a_resumed_run_is_the_uninterrupted_one(model: str) -> None:
    words = ["--model_name_or_path", model, "--train_file", record("train", 20), "--do_train", *SHORT]
    words += ["--train_val_split", "0", "--gumbel_temperature_decay", "0.9", "--max_duration_in_seconds", "0.2"]
    words += ["--augment_gain_db", "6", "--num_train_epochs", "2"]
    whole = run(TASK, [*words, "--save_strategy", "steps", "--save_steps", "2", "--dataloader_num_workers", "2"])
    resumed = run(TASK, [*words, "--output_dir", "again", "--resume_from_checkpoint", "out/checkpoint-2"])
    one, other = whole.trainer.model.state_dict(), resumed.trainer.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    seen = [log["gumbel_temperature"] for log in resumed.trainer.state.log_history if "gumbel_temperature" in log]
    assert seen == pytest.approx([2.0 * 0.9**step for step in range(6)])


def test_evaluation_has_the_same_masks_each_time(model: str) -> None:
    words = ["--model_name_or_path", model, "--validation_file", record("dev", 8), "--do_eval", *SHORT]
    finished = run(TASK, words)
    again = finished.trainer.evaluate()
    for name in ("eval_loss", "eval_contrastive_loss", "eval_code_perplexity", "eval_masked_share"):
        assert again[name] == finished.metrics[name]
    one = run(TASK, [*words, "--per_device_eval_batch_size", "3"]).metrics
    weighed = "eval_contrastive_loss"  # by masked frames, so that batches do not matter
    assert one[weighed] == pytest.approx(again[weighed], rel=1e-4)


def test_mistakes_are_named(model: str) -> None:
    words = ["--train_file", record("train", 4), "--do_train", *SHORT, "--train_val_split", "0"]
    with pytest.raises(DataError, match=r"(?s)no recording is between 3 and inf seconds.*the longest has"):
        run(TASK, [*words, "--model_name_or_path", model, "--min_duration_in_seconds", "3"])
    with pytest.raises(ConfigError, match="a model of type 'hubert' cannot be pretrained here"):
        run(TASK, [*words, "--model_type", "hubert"])
    with pytest.raises(ConfigError, match="--do_predict has nothing to predict"):
        run(TASK, [*words, "--model_name_or_path", model, "--do_predict"])
