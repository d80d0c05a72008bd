"""Arguments for reading data and for reproducing a run."""

from __future__ import annotations

from dataclasses import dataclass

from ..argument import Range, argument
from ..resume_rules import (
    change_columns,
    change_data_seed,
    change_last_batch,
    change_lengths,
    change_numbers,
    change_order,
    change_seed,
    change_workers,
)


@dataclass
class DataLoaderArguments:
    """Data loading: workers, columns and the order of rows."""

    dataloader_drop_last: bool = argument(
        False, help="Drop the last batch of an epoch if it is not full.", on_resume=change_last_batch
    )
    dataloader_num_workers: int = argument(
        0,
        help="Worker processes that prepare batches in the background. 0: batches are prepared in the main process.",
        number=Range(minimum=0, whole=True),
        on_resume=change_workers,
    )
    dataloader_pin_memory: bool = argument(
        True,
        help="Keep batches in pinned memory, from which a GPU copies faster. Always off on a CPU.",
        on_resume=None,
    )
    dataloader_persistent_workers: bool = argument(
        False, help="Keep workers alive between epochs: a faster start, but more memory.", on_resume=None
    )
    dataloader_prefetch_factor: int | None = argument(
        None,
        help="Number of batches that each worker prepares in advance.",
        number=Range(minimum=1, whole=True),
        on_resume=None,
    )
    dataloader_multiprocessing_context: str | None = argument(
        None,
        help="How workers are started. Default: Python's default.",
        choices=("fork", "spawn", "forkserver"),
        on_resume=None,
    )
    dataloader_in_order: bool = argument(
        True,
        help="Return batches in their order; otherwise in the order in which workers finish them.",
        on_resume=change_numbers,
    )
    remove_unused_columns: bool = argument(
        True, help="Drop the columns of a dataset that the model's forward does not accept.", on_resume=change_columns
    )
    label_names: list[str] | None = argument(
        None,
        help="Names of the inputs that are labels. Default: found in the model's signature.",
        kind=list,
        on_resume=None,
    )
    train_sampling_strategy: str = argument(
        "random",
        help="Order of training rows: shuffled, as stored, grouped by length, or in batches of similar cost.",
        choices=("random", "sequential", "group_by_length", "batch_rebalance"),
        on_resume=change_order,
    )
    length_column_name: str = argument(
        "length",
        help="Column with the length of each row. Without it, lengths are computed.",
        on_resume=change_lengths,
    )


@dataclass
class ReproducibilityArguments:
    """Seeds, determinism and data order on resume."""

    ignore_data_skip: bool = argument(
        False,
        help="When resuming, start the epoch's data again instead of continuing where it stopped.",
        on_resume=None,
    )
    restore_callback_states_from_checkpoint: bool = argument(
        False,
        help="When resuming, restore the constructor arguments of callbacks too, not only what has changed since.",
        on_resume=None,
    )
    full_determinism: bool = argument(
        False,
        help="Use deterministic kernels only: slower, for finding the difference between two runs.",
        on_resume=None,
    )
    seed: int = argument(
        42, help="Seed of every random choice of a run.", number=Range(whole=True), on_resume=change_seed
    )
    data_seed: int | None = argument(
        None,
        help="Seed of the order of training data only. Default: seed.",
        number=Range(whole=True),
        on_resume=change_data_seed,
    )
