"""Train on a Ray cluster: python examples/ray_train.py [--workers 2] [--out DIR]. Needs `pip install "ostinato[ray]"`.

A worker that is lost is started again, and training goes on from the newest checkpoint. `--kill 4` ends the second
worker right after the checkpoint of step 4 was reported, to show it.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.integrations.ray import RayReportCallback, find_checkpoint


def train_on_worker(config: dict[str, Any]) -> None:
    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, x, labels):
            return {"loss": nn.functional.mse_loss(self.layers(x).squeeze(-1), labels)}

    class Kill(TrainerCallback):
        def on_save(self, args, state, control, **kwargs) -> None:
            mark = Path(config["out"]) / "killed"
            if state.global_step == config["kill"] and args.process_index == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    draw = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.randn((), generator=draw)} for _ in range(64)]
    args = TrainingArguments(
        config["out"], per_device_train_batch_size=4, max_steps=12, save_steps=2, logging_steps=1, learning_rate=1e-2,
        use_cpu=True, disable_tqdm=True, report_to="none",
    )  # fmt: skip
    trainer = Trainer(Regression(), args, train_dataset=rows, callbacks=[RayReportCallback(), Kill()])
    trainer.train(resume_from_checkpoint=find_checkpoint(args.output_dir or config["out"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", default="ray_run")
    parser.add_argument("--kill", type=int, default=0)
    options = parser.parse_args()

    out = Path(options.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    result = TorchTrainer(
        train_on_worker,
        train_loop_config={"out": str(out), "kill": options.kill},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name=out.name, storage_path=str(out.parent), failure_config=FailureConfig(max_failures=2)
        ),
    ).fit()
    assert result.metrics is not None and result.checkpoint is not None
    print("loss", result.metrics["loss"], "checkpoint", result.checkpoint.path)


if __name__ == "__main__":
    main()
