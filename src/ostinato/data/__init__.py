"""The way of a row to the model: which columns it keeps, in which order it comes, how rows become a batch.

columns.py     which columns of the data set reach the model
samplers.py    in which order rows are read, and which rows this process reads
collators/     rows -> batch
loaders.py     all of it together: an iterator over batches
sizes.py       how many rows there are, if anyone knows
"""
