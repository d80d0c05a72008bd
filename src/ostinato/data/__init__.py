"""The way of a row to the model: which columns it keeps, in which order it comes, how rows become a batch.

columns.py     which columns of the data set reach the model
sizes.py       how many rows there are, if anyone knows
lengths.py     how long rows are

samplers.py    in which order rows are read, and which rows this process reads
windows.py     like lengths together, a window at a time
budget.py      batches of so many tokens
mixture.py     several training sets as one; sources.py: which row came from which, and its loss
given.py       orders, batches and loaders of the user's own

collators/     rows -> batch
cutting.py     one batch -> micro-batches of like length
packing.py     rows end to end; packing_check.py: whether a model keeps them apart

loaders.py     all of it together: an iterator over batches
reading.py     reading in workers
bad_rows.py    rows that cannot be read, left out
row_streams.py what reading may draw at random
position.py    a place in the data, and how to start there

mistakes.py    what can be wrong with data, in words; diagnosis.py: finding out which
"""
