"""A script that torchrun restarts, and that names no checkpoint: `restart_worker.py OUT STORE [RANK:MOMENT ...]`.

In its first attempt the process of the first RANK kills itself at MOMENT, "step" or "save", and so on. Each of several
processes is the agent of a node with one worker; one alone is the agent of two workers. STORE is "shared" if workers
meet in the store of their agent, as is usual, or "private".
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.checkpoint import disk


class Model(nn.Module):
    """Dropout draws random numbers in every step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.drop, self.outer = nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.outer(self.drop(torch.relu(self.inner(x)))).squeeze(-1)
        return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}


class Killing(TrainerCallback, disk.Disk):
    """Kills a process inside a step, or when a checkpoint is all but written."""

    def __init__(self, out: Path, kills: list[str]) -> None:
        self.out, self.rank = out, int(os.environ["RANK"])
        self.attempt = len(list(out.glob("killed-*")))
        self.rank_to_kill, _, self.moment = (kills[self.attempt] if self.attempt < len(kills) else "").partition(":")

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.moment == "step" and state.global_step == 3:
            self.kill()

    def rename(self, source: Path, target: Path) -> None:
        if self.moment == "save" and target.name == "checkpoint-6":
            self.kill()
        super().rename(source, target)

    def kill(self) -> None:
        if self.rank_to_kill == str(self.rank):
            (self.out / f"killed-{self.attempt}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        # A process that waits for a dead one on another node need not notice: only its agent is told, which does not
        # count that as a restart.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(30)


def work(out: Path, kills: list[str]) -> None:
    torch.set_num_threads(1)
    killing = Killing(out, kills)
    if killing.attempt and killing.rank == killing.attempt % 2:
        time.sleep(0.3)  # the one that comes late finds what the others, and those before them, have left in the store
    args = TrainingArguments(
        str(out / "run"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=8,
        save_steps=2,
        learning_rate=1e-2,
        ddp_timeout=20,
        use_cpu=True,
        disable_tqdm=True,
    )
    draw = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.randn((), generator=draw)} for _ in range(40)]
    trainer = Trainer(Model(), args, train_dataset=rows, callbacks=[killing])
    with disk.using(killing):
        trainer.train()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in trainer.model.parameters())
    (out / f"weights-{killing.rank}").write_text(hashlib.sha256(weights).hexdigest())
    (out / f"restarts-{killing.rank}").write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    nodes = int(os.environ.get("WORLD_SIZE", "1"))
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=2 // nodes,
        run_id="restarts",
        rdzv_backend="c10d",
        rdzv_endpoint=f"localhost:{os.environ.get('MASTER_PORT', 0)}",
        rdzv_configs={"is_host": os.environ.get("RANK", "0") == "0"},
        local_addr="localhost",
        max_restarts=2,
        start_method="fork",  # a copy has everything imported
        logs_specs=DefaultLogsSpecs(),
    )
    out, store, *kills = sys.argv[1:]
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(store == "private"))
    elastic_launch(config, work)(Path(out), kills)
