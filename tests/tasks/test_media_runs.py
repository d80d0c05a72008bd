"""Runs over images: killed and resumed, and by two processes: rows that are read and augmented by workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ostinato.tasks import run
from ostinato.tasks.samples.shapes import SHAPES, draw_shape, save_picture
from tests.support.task_runs import run_apart

pytest.importorskip("PIL.Image")
TASK = "image-classification"
IMPORTS = ("transformers.models.vit", "ostinato.tasks.image_classification")
TINY = (
    "image_size=16,patch_size=8,hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32,"
    "hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0"
)
AUGMENTED = ["--color_jitter", "0.3", "--random_erasing", "0.5"]

KILLED = """
import os, signal, sys
from ostinato import TrainerCallback
from ostinato.tasks import run
from ostinato.tasks.image_classification import ImageClassification

class Kill(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

class Killed(ImageClassification):
    def get_trainer_arguments(self, splits, features):
        return {**super().get_trainer_arguments(splits, features), "callbacks": [Kill()]}

run(Killed, sys.argv[1:])
"""
# Every process writes which rows it reads to train on.
WATCHED = """
import os, sys
from ostinato.tasks import run
from ostinato.tasks.image_classification import ImageClassification

class Watched(ImageClassification):
    def read_row(self, row, purpose):
        with open(f"{purpose}-{os.environ['RANK']}.txt", "a") as file:
            file.write(row["image"] + "\\n")
        return super().read_row(row, purpose)

run(Watched, sys.argv[1:])
"""


def draw(directory: Path, count: int) -> Path:
    from ostinato.tasks.samples.sentences import create_random

    numbers = create_random(0)
    for number in range(count):
        shape = SHAPES[number % len(SHAPES)]
        picture, _ = draw_shape(shape, "red", numbers, 20)
        save_picture(picture, directory / shape / f"{number:03}.png")
    return directory


def command(*more: str, count: int = 40) -> list[str]:
    train = draw(Path("train"), count)
    return [
        *("--train_dir", str(train), "--train_val_split", "0", "--do_train", "--model_type", "vit"),
        *("--config_overrides", TINY, "--report_to", "none", "--learning_rate", "1e-3", "--output_dir", "out"),
        *("--rehearse", "false", *more),
    ]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_killed_run_resumes_bit_for_bit(workers: str, shelf: Path) -> None:
    """With augmentation, and as the run of the other number of workers."""
    words = command("--max_steps", "10", "--save_steps", "3", "--per_device_train_batch_size", "8", *AUGMENTED)
    other = {"0": "2", "2": "0"}[workers]
    whole = run(TASK, [*words, "--output_dir", "whole", "--dataloader_num_workers", other]).trainer
    words += ["--dataloader_num_workers", workers]
    done = run_apart(KILLED, words, shelf, IMPORTS)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Path("out/model.safetensors").exists()
    resumed = run(TASK, [*words, "--resume_from_checkpoint", "true"]).trainer
    assert resumed.state.global_step == 10
    assert Path("out/checkpoint-3").is_dir()
    state = resumed.model.state_dict()
    assert [name for name, weight in whole.model.state_dict().items() if not torch.equal(state[name], weight)] == []


def test_two_processes_see_each_row_once(shelf: Path) -> None:
    """And augment it as one process with twice the batch does: the weights are the same but for rounding."""
    more = ["--num_train_epochs", "1", "--save_strategy", "no", *AUGMENTED]
    one = run(TASK, [*command(*more), "--output_dir", "one", "--per_device_train_batch_size", "8"])
    words = [*command(*more), "--per_device_train_batch_size", "4", "--use_cpu"]
    done = run_apart(WATCHED, words, shelf, IMPORTS, processes=2)
    assert done.returncode == 0, done.stderr
    seen = [Path(f"train-{rank}.txt").read_text().splitlines() for rank in (0, 1)]
    files = [str(path.relative_to("train")) for path in Path("train").glob("*/*.png")]
    assert sorted(seen[0] + seen[1]) == sorted(files)
    assert len(seen[0]) == len(seen[1]) == 20
    assert one.metrics["train_samples"] == 40
    alone = load_file("one/model.safetensors")
    for name, weight in load_file("out/model.safetensors").items():
        torch.testing.assert_close(weight, alone[name], atol=1e-5, rtol=1e-4)
