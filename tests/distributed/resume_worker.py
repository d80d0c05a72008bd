"""What two processes say of resuming; started by test_resume_of_two.py."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import torch

from tests.support import tiny
from tests.support.apis import Api

OUT, RANK = Path(sys.argv[1]), int(os.environ["RANK"])


class NoisyInOne(tiny.MapDataset):
    """Draws from a generator that no checkpoint knows, in the second process only."""

    def __init__(self) -> None:
        super().__init__(tiny.regression_rows())
        self.draw = random.Random(0)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": [value + RANK * self.draw.random() for value in row["x"]]}


def build(folder: str, data: Any = None) -> Any:
    api = Api("ostinato", OUT / folder)
    api.set_seed(42)
    args = api.args(per_device_train_batch_size=2, max_steps=6, save_strategy="steps", save_steps=2)
    data = tiny.regression_rows() if data is None else data
    return api.trainer(tiny.regression(dropout=0.2), args, train_dataset=data)


def damage(*steps: int) -> None:
    for step in steps if RANK == 0 else ():
        path = OUT / "run" / f"checkpoint-{step}" / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


told: dict[str, Any] = {}
told["exact"] = build("verified").verify_resume().first_difference
told["left behind"] = (OUT / "verified").exists()
told["noisy"] = build("verified", NoisyInOne()).verify_resume().first_difference

whole = build("run")
whole.train()
damage(6)
whole.strategy.barrier()
resumed = build("run")
resumed.train(resume_from_checkpoint=True)
told["from step"] = resumed._run.origin.step
told["equal"] = all(map(torch.equal, whole.model.parameters(), resumed.model.parameters()))
whole.strategy.barrier()
damage(2, 4, 6)
whole.strategy.barrier()
try:
    build("run").train(resume_from_checkpoint=True)
except ValueError as error:
    told["refused"] = str(error).splitlines()[0]

(OUT / f"rank-{RANK}.json").write_text(json.dumps(told))
torch.distributed.destroy_process_group()
