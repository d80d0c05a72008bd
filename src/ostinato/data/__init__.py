"""The way of a row to the model: which columns it keeps, in which order it comes, how rows become a batch.

columns.py     which columns of the data set reach the model
sizes.py       how many rows there are, if anyone knows
lengths.py     how long rows are

orders.py      an order that is computed, not drawn
samplers.py    in which order rows are read, and which rows this process reads
windows.py     like lengths together, a window at a time
budget.py      batches of so many tokens
mixture.py     several training sets as one; sources.py: which row came from which, and its loss
given.py       orders, batches and loaders of the user's own

collators/     rows -> batch
cutting.py     one batch -> micro-batches of like length
packing.py     rows end to end; packing_check.py: whether a model keeps them apart

loaders.py     all of it together: an iterator over batches
reading.py     reading rows by their numbers, in workers too; failing.py: what fails there
streams.py     rows that come one after another; stream_reading.py, stream_windows.py: in batches, by length
marks.py       what may come in the place of a row; bad_rows.py: rows that cannot be read, left out
row_streams.py what reading may draw at random

batching.py    how rows become batches, and what is left of an epoch from any place on
courses.py     the steps of a run as arithmetic
position.py    a place in the data, and how to start there; skipping.py: how far the reading of what is dropped is

mistakes.py    what can be wrong with data, in words; diagnosis.py: finding out which
"""
