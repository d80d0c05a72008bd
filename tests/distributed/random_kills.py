"""A job whose processes are killed at random moments: `python -m tests.distributed.random_kills OUT KILLS [SEED]`.

torch's agent restarts it, up to three times in a job; the store of the agent is shared in every second job. Of three
kills one comes at any time, one in a save and one in an evaluation. Each job ends with the weights, the log and the
best model of the job never killed, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from tests.distributed.restart_worker import Model

PROCESSES, STEPS, RESTARTS, PATIENCE = 2, 40, 3, 300
MOMENTS = ("any time", "save", "evaluation")


class Telling(TrainerCallback):
    """Writes down which process this is, at which step it is, and when it evaluates."""

    def __init__(self, out: Path) -> None:
        self.out, self.rank = out, os.environ["RANK"]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self.out / f"process-{self.rank}").write_text(str(os.getpid()))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self.out / "evaluating").unlink(missing_ok=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self.out / f"steps-{self.rank}").write_text(str(state.global_step))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self.out / "evaluating").touch()


def work(out: Path) -> None:
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.randn((), generator=draw)} for _ in range(60)]
    args = TrainingArguments(
        str(out / "run"),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        save_steps=2,
        save_total_limit=3,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        learning_rate=1e-2,
        ddp_timeout=30,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), args, train_dataset=rows, eval_dataset=rows[:24], callbacks=[Telling(out)])
    trainer.train()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in trainer.model.parameters())
    numbers = [
        {name: value for name, value in entry.items() if not name.endswith(("_runtime", "_per_second"))}
        for entry in trainer.state.log_history
    ]
    best = (trainer.state.best_metric, trainer.state.best_global_step)
    found = json.dumps([hashlib.sha256(weights).hexdigest(), numbers, best], sort_keys=True)
    (out / f"end-{args.process_index}").write_text(found)


def start(out: Path, *, is_shared: bool) -> int:
    """Start a job in a copy of this process; return its id."""
    out.mkdir(parents=True)
    agent = os.fork()
    if agent:
        return agent
    log = os.open(out / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(not is_shared))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=PROCESSES,
        run_id="kills",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        rdzv_configs={"is_host": True},
        local_addr="localhost",
        max_restarts=RESTARTS,
        monitor_interval=0.1,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(),
    )
    code = 1
    try:
        elastic_launch(config, work)(out)
        code = 0
    finally:
        os._exit(code)


def kill_at(agent: int, out: Path, moment: str, draw: random.Random) -> str:
    """Kill one process of a job at such a moment; return where it was."""
    rank, running = draw.randrange(PROCESSES), [out / f"process-{rank}" for rank in range(PROCESSES)]
    wait_until(agent, lambda: all(path.exists() for path in running))
    first = read_step(out)
    at_least = first + draw.randrange(1, 5)
    wait_until(agent, lambda: read_step(out) >= min(at_least, STEPS - 4) and is_at(out, moment))
    time.sleep(draw.random() * (0.3 if moment == "any time" else 0.02))
    found = next((name for name in MOMENTS[1:] if is_at(out, name)), "between")
    process = int(running[rank].read_text())
    for path in running:
        path.unlink()
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return f"rank {rank} at step {read_step(out)}, {found}"
    raise AssertionError("the process had ended before it was killed")


def is_at(out: Path, moment: str) -> bool:
    if moment == "save":
        return (out / "run").is_dir() and any(name.endswith(".partial") for name in os.listdir(out / "run"))
    return moment == "any time" or (out / "evaluating").exists()


def read_step(out: Path) -> int:
    with suppress(OSError, ValueError):  # it is being written
        return int((out / "steps-0").read_text())
    return 0


def wait_until(agent: int, happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, "nothing happens any more"
        ended = os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert ended is None, "the job has ended"
        time.sleep(0.0005)


def finish(agent: int, out: Path) -> list[str]:
    _, status = os.waitpid(agent, 0)
    assert status == 0, (out / "log").read_text()[-3000:]
    return [(out / f"end-{rank}").read_text() for rank in range(PROCESSES)]


def main(out: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    whole = finish(start(out / "whole", is_shared=True), out / "whole")
    inside: dict[str, int] = {}
    for job in range(-(-kills // RESTARTS)):
        folder, is_shared = out / f"job-{job}", job % 2 == 0
        agent = start(folder, is_shared=is_shared)
        for number in range(min(RESTARTS, kills - job * RESTARTS)):
            where = kill_at(agent, folder, MOMENTS[number], draw)
            inside[where.rpartition(", ")[2]] = inside.get(where.rpartition(", ")[2], 0) + 1
            print(f"job {job}, store {'shared' if is_shared else 'private'}: killed {where}", flush=True)
        assert finish(agent, folder) == whole, f"job {job} ended otherwise than the one that was never killed"
    print(f"{kills} kills ({inside}): every job ended as the one that was never killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
