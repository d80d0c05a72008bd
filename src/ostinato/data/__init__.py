"""From rows to batches: the columns a row keeps, the order of rows, and how rows become a batch.

columns.py          which columns of the data set reach the model
sizes.py            the number of rows, where it is known
row_lengths.py      the lengths of rows

samplers/           the order of rows, and the rows that this process reads; rows of similar length together
mixture.py          several training sets as one; mixture_loss.py: the set of each row, and the loss of each set
user_loaders.py     samplers, batch samplers and loaders that the user passes
eval_set.py         an evaluation set with options of its own

collators/          rows -> batch
batching/           batches by number of tokens, micro-batches of similar length, packing; what is left of an epoch

build.py            the loader for a data set of any kind; loader.py: an iterator over batches
batch_reader.py     reads rows by number, also in workers; worker_errors.py: errors while reading
streams/            rows without numbers: in batches, by length, divided among processes
row_types.py        values that replace a row; bad_rows.py: skips rows that cannot be read
empty_batches.py    batches without rows
row_random.py       the random numbers that reading draws

step_schedule.py    the steps of a run as arithmetic
epoch_position.py   a position in the data, and how to start there; skip_progress.py: progress of reading dropped rows

dataset_errors.py   errors in data; collate_errors.py: why rows do not make a batch
nonfinite_inputs.py inputs that are NaN or infinite
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import (
        batching,
        build,
        collators,
        columns,
        dataset_errors,
        epoch_position,
        kept_loaders,
        mixture,
        samplers,
        sizes,
        user_loaders,
    )
else:
    __getattr__ = load_on_use(__name__)
