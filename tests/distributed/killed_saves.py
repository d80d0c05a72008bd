"""Kill both processes of a sharded run while they save, again and again: `killed_saves.py OUT KILLS`.

After every kill the newest whole checkpoint is resumed. The end has to be that of a run that was never killed.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import torch

from ostinato import Trainer, TrainingArguments
from ostinato.checkpoint.verify import verify_run
from tests.distributed.sharded_worker import Tied, make_rows

STEPS, PATIENCE = 60, 120


def work(out: Path) -> None:
    """Train in one of two processes, from the newest whole checkpoint if there is one."""
    torch.set_num_threads(1)
    args = TrainingArguments(
        str(out),
        shard="full",
        per_device_train_batch_size=4,
        max_steps=STEPS,
        save_steps=1,
        save_total_limit=2,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        ddp_timeout=60,
    )
    trainer = Trainer(Tied(), args, train_dataset=make_rows(54))
    trainer.train(resume_from_checkpoint=any(out.glob("checkpoint-*")))
    numbers = [parameter.full_tensor() for parameter in trainer.model.parameters()]  # type: ignore[operator]
    digest = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in numbers)).hexdigest()
    (out / f"end-{os.environ['RANK']}").write_text(digest)


def start(out: Path) -> list[int]:
    """Start both processes, as copies of this one; return their ids."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="localhost")
            try:
                work(out)
            finally:
                os._exit(0 if (out / f"end-{rank}").exists() else 1)
        children.append(child)
    return children


def kill_in_save(out: Path, children: list[int], draw: random.Random) -> bool:
    """Kill both while a checkpoint is being written; return whether one was."""
    give_up, saves = time.monotonic() + PATIENCE, draw.randrange(1, 4)
    seen: set[str] = set()
    while time.monotonic() < give_up and len(seen) < saves:
        seen |= {name for name in os.listdir(out) if name.endswith(".partial")} if out.is_dir() else set()
    time.sleep(draw.random() * 0.03)
    was_saving = any(name.endswith(".partial") for name in os.listdir(out))
    for child in draw.sample(children, 2):
        os.kill(child, signal.SIGKILL)
        time.sleep(draw.random() * 0.01)
    for child in children:
        os.waitpid(child, 0)
    return was_saving


def main(out: Path, kills: int) -> None:
    draw, inside = random.Random(0), 0
    for child in start(out / "whole"):
        os.waitpid(child, 0)
    for number in range(kills):
        inside += kill_in_save(out / "killed", start(out / "killed"), draw)
        found = sorted(path.name for path in (out / "killed").glob("checkpoint-*"))
        broken = [verdict for verdict in (verify_run(out / "killed") if found else ()) if not verdict.is_whole]
        assert not broken, broken
        print(f"kill {number + 1}: there are {', '.join(found) or 'none'}; {inside} inside a save", flush=True)
    for child in start(out / "killed"):
        os.waitpid(child, 0)
    ends = {(out / kind / f"end-{rank}").read_text() for kind in ("whole", "killed") for rank in range(2)}
    assert len(ends) == 1, ends
    print(f"{kills} kills, {inside} inside a save: the end is that of the run never killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
