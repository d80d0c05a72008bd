"""Kill a training run in the middle, resume it, and compare the weights with those of a run that was never killed.

    python examples/kill_and_resume.py

The model has dropout and batch norm, and every image is shifted at random each time it is read: all of that has to
come back exactly. The run is killed with SIGKILL, which no program can catch, at a moment drawn at random.
"""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from digits import DigitReader, load_rows
from ostinato import Trainer, TrainingArguments, set_seed

RUNS = Path("runs/kill-and-resume")


class ShiftedDigits(torch.utils.data.Dataset):
    """The digits, each moved by a random number of pixels whenever it is read."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        shift = tuple(torch.randint(-1, 2, (2,)).tolist())
        return {**row, "pixels": row["pixels"].roll(shift, dims=(1, 2))}


def train(directory: str) -> None:
    """The run: the same call whether it begins or goes on."""
    set_seed(42)
    args = TrainingArguments(
        output_dir=directory,
        num_train_epochs=3,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        save_steps=20,
        save_total_limit=2,
        logging_steps=10,
        disable_tqdm=True,
        log_level="error",
    )
    trainer = Trainer(DigitReader(), args, train_dataset=ShiftedDigits(load_rows()[0]))
    trainer.train(resume_from_checkpoint=any(Path(directory).glob("checkpoint-*")))
    trainer.save_model(f"{directory}/final")


def start(directory: Path) -> subprocess.Popen:
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "OSTINATO_VERBOSITY": "error"}}
    return subprocess.Popen([sys.executable, __file__, str(directory)], **quiet)


def finish(run: subprocess.Popen) -> None:
    if run.wait() != 0:
        raise SystemExit(f"training ended with exit code {run.returncode}")


def kill_in_the_middle(directory: Path) -> list[str]:
    """Let it write a checkpoint or some, wait a moment that nobody can foresee, kill it. Returns what is left."""
    chance, run = random.SystemRandom(), start(directory)
    enough = chance.choice([20, 40, 60])
    while not (directory / f"checkpoint-{enough}").exists() and run.poll() is None:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.3))
    run.send_signal(signal.SIGKILL)
    if run.wait() != -signal.SIGKILL:
        raise SystemExit("the run was over before it could be killed")
    return sorted((path.name for path in directory.glob("checkpoint-*")), key=lambda name: int(name.split("-")[1]))


def fingerprint(directory: Path) -> str:
    """A hash of every weight, buffers of batch norm included."""
    weights, digest = load_file(directory / "final" / "model.safetensors"), hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    shutil.rmtree(RUNS, ignore_errors=True)
    print("\nKill it, resume it, compare.\n")
    whole, cut = RUNS / "never-killed", RUNS / "killed"

    finish(start(whole))
    print(f"  never killed          weights {fingerprint(whole)[:16]}")

    left = kill_in_the_middle(cut)
    print(f"  killed by SIGKILL     it leaves {', '.join(left)}")

    finish(start(cut))
    print(f"  resumed from there    weights {fingerprint(cut)[:16]}")

    if fingerprint(whole) != fingerprint(cut):
        raise SystemExit("\nThe weights differ. This should never happen: please report it.")
    print("\nThe same weights, bit for bit.")


if __name__ == "__main__":
    train(sys.argv[1]) if len(sys.argv) > 1 else main()
