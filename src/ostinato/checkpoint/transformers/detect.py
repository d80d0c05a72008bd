"""Detect checkpoints of stock transformers: the names of their files, and how they differ from ours."""

from __future__ import annotations

import re
from pathlib import Path

from .. import io
from ..file_names import LOOP_NAME, MANIFEST_NAME, OPTIMIZER_NAME, TRAINER_STATE_NAME
from ..tensors import read_tree

OPTIMIZER_PT = "optimizer.pt"
SCHEDULER_PT = "scheduler.pt"
SCALER_PT = "scaler.pt"
PICKLED_WEIGHTS_NAME = "pytorch_model.bin"
PICKLED_WEIGHTS_INDEX_NAME = "pytorch_model.bin.index.json"

# What only we record of a run, kept in a checkpoint that was converted to theirs; transformers does not read it.
SIDECAR = "ostinato"
# In a `loop.json` that was converted from theirs: they record no running sums and no position in the data.
ORIGIN = {"origin": "transformers"}

_RANDOM = re.compile(r"rng_state(?:_(\d+))?\.pth")


def is_from_transformers(directory: str | Path) -> bool:
    """Return whether stock transformers wrote this checkpoint, so that `read` has to infer what it does not record.

    Also true once `convert` has converted it to our files: they still record no more. False where both layouts exist
    side by side: ours is complete.

    >>> is_from_transformers("out/checkpoint-20")
    False
    """
    directory = Path(directory)
    if (directory / LOOP_NAME).exists():
        return read_tree(directory, LOOP_NAME.removesuffix(".json")) == ORIGIN
    if (directory / OPTIMIZER_NAME).exists():
        return False
    if (directory / MANIFEST_NAME).exists():  # weights that we kept apart have one; so has what we converted to theirs
        return (directory / OPTIMIZER_PT).exists()
    return (directory / TRAINER_STATE_NAME).exists()


def format_random_name(rank: int, world_size: int) -> str:
    """Return the name of the file of a process's random streams.

    >>> format_random_name(0, 1), format_random_name(1, 2)
    ('rng_state.pth', 'rng_state_1.pth')
    """
    return "rng_state.pth" if world_size == 1 else f"rng_state_{rank}.pth"


def find_random_ranks(directory: Path) -> list[int]:
    """Return the ranks whose random streams are saved; raise unless they are 0, 1, 2, ... without a gap."""
    found = [match for path in directory.iterdir() if (match := _RANDOM.fullmatch(path.name))]
    ranks = sorted({int(match[1] or 0) for match in found})
    for rank in range(len(ranks)):
        if rank not in ranks:
            raise io.build_missing_error(directory / format_random_name(rank, len(ranks)))
    return ranks
