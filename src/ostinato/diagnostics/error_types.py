"""The mistakes that have a name. Each is also the built-in type that torch or transformers raises in its place.

LabelRangeError(DataError, IndexError, RuntimeError)        a label that is no class of the model
LabelShapeError(DataError, RuntimeError)                    more or fewer labels than predictions
LabelTypeError(DataError, RuntimeError)                     integers where floats are wanted, or the other way round
IndexRangeError(DataError, IndexError)                      a token or another index beyond its table of embeddings
TooLongError(DataError, IndexError, RuntimeError)           more tokens than the model has positions
InputShapeError(DataError, RuntimeError)                    a column of another width than the layer that takes it
InputTypeError(DataError, RuntimeError, TypeError)          a column of another type than the layer that takes it
ForwardCallError(DataError, TypeError)                      columns that forward does not take
MissingLabelsError(DataError, ModelOutputError, TypeError)  no labels, so no loss
NoGradientError(ModelOutputError, RuntimeError)             a loss that training cannot change
LossFunctionError(ConfigError, TypeError)                   a compute_loss_func that cannot be called
MetricFunctionError(MetricError, TypeError)                 a metric function that cannot be called, or would never be
NoWeightsError(ConfigError, NotImplementedError)            a model on the meta device
"""

from __future__ import annotations

from ..core.errors import ConfigError, DataError, MetricError, ModelOutputError


class LabelRangeError(DataError, IndexError, RuntimeError):
    """A label that is no class of the model."""


class LabelShapeError(DataError, RuntimeError):
    """More or fewer labels than predictions."""


class LabelTypeError(DataError, RuntimeError):
    """Labels that are integers where floats are wanted, or the other way round."""


class IndexRangeError(DataError, IndexError):
    """A token, or another index, beyond its table of embeddings."""


class TooLongError(DataError, IndexError, RuntimeError):
    """A sequence of more tokens than the model has positions."""


class InputShapeError(DataError, RuntimeError):
    """A column of another width than the layer that takes it."""


class InputTypeError(DataError, RuntimeError, TypeError):
    """A column of another type than the layer that takes it."""


class ForwardCallError(DataError, TypeError):
    """Columns that forward does not take."""


class MissingLabelsError(DataError, ModelOutputError, TypeError):
    """No labels in the batch, so no loss."""


class NoGradientError(ModelOutputError, RuntimeError):
    """A loss on which no trainable weight has an influence."""


class LossFunctionError(ConfigError, TypeError):
    """A `compute_loss_func` that cannot be called as it has to be."""


class MetricFunctionError(MetricError, TypeError):
    """A metric function that cannot be called, or would never be."""


class NoWeightsError(ConfigError, NotImplementedError):
    """A model on the meta device: shapes without numbers."""
