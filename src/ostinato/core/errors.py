"""The error tree. Every error says what happened, why, and what to do.

Each error is also the built-in type that transformers or torch raises in its place (in parentheses), so that
`except ValueError` keeps working. Errors that need the types of one package are defined there; the others here.

    OstinatoError
    ├── ConfigError(ValueError)                              arguments that contradict one another or cannot be met
    │   ├── NotSupportedError(NotImplementedError)           something that Ostinato does not do
    │   │   ├── NoSuchNameError(AttributeError)              an attribute of transformers' Trainer that is not here
    │   │   └── NoHubLibraryError(ImportError)               huggingface_hub is not installed
    │   ├── MissingPackageError(ImportError)                 an optimizer or kernel whose package is not installed
    │   │   └── EngineMissingError(RuntimeError)             a search library that is not installed
    │   ├── SpaceError                                       a search space that cannot be drawn from
    │   ├── NoModelInitError(RuntimeError)                   a search without a function that makes models
    │   ├── UnknownOptionError(TypeError)                    an option that the search library does not have
    │   ├── AllTrialsFailedError(RuntimeError)               a search of which no trial is complete
    │   ├── StudyExistsError(DuplicatedStudyError)           a name that another study of Optuna's has
    │   ├── TrackerMissing(RuntimeError)                     a tracker whose package is not installed
    │   ├── UnknownArgumentError(TypeError)                  an argument that does not exist
    │   ├── WrongTypeError(TypeError)                        a value of a type that the trainer cannot use
    │   ├── NoModelError(RuntimeError)                       neither model nor model_init
    │   ├── NoSuchSetError(KeyError)                         an evaluation set that eval_dataset does not hold
    │   ├── NoGenerationError(AttributeError)                generation without a model or tokenizer that can
    │   ├── UnreadableGenerationError(OSError)               a generation config that cannot be read
    │   ├── NotADataclassError(TypeError)                    a parser for something that is not a dataclass
    │   ├── MissingArgumentError(TypeError)                  a file or dict without a required value
    │   ├── UnresolvedTypeError(RuntimeError)                an annotation whose names cannot be resolved
    │   ├── EarlyStoppingError(AssertionError)               early stopping without the arguments it needs
    │   ├── CompileError(RuntimeError)                       a compiler that cannot be used
    │   ├── ProcessesMissingError(RuntimeError)              processes of a run that did not join in time
    │   └── LossFunctionError(TypeError)                     a compute_loss_func that cannot be called
    ├── DataError(ValueError)                                a data set, row or batch that the model cannot take
    │   ├── RowsError                                        rows that do not make a batch
    │   │   ├── NotARowError(TypeError, AttributeError)      a row that is not a dict
    │   │   ├── MissingColumnError(KeyError)                 a row without a column that other rows have
    │   │   ├── WrongValueError(TypeError, RuntimeError)     text, None or an object where numbers are expected
    │   │   └── RaggedError(RuntimeError)                    values of one column with different shapes
    │   ├── NotADataSetError(TypeError, KeyError)            an object that has no rows by number
    │   ├── CollatorError(TypeError)                         a collator that makes no batches
    │   ├── NoPadTokenError(ConfigError)                     a tokenizer without a padding token
    │   ├── MissingInputError(TypeError)                     a model without an input that it needs
    │   ├── MixtureError(ConfigError)                        data sets or weights that make no mixture
    │   ├── PackingError                                     a model that mixes packed rows
    │   ├── NotAStepError(TypeError)                         a step that is not a number
    │   ├── NoSuchStepError(IndexError)                      a step that the run does not have
    │   ├── NonFiniteInputError(NonFiniteError)              NaN or infinity in the data of the first step
    │   ├── JournalError(OSError)                            a journal that is missing or empty
    │   ├── NoStudyError(OSError)                            a directory without a search
    │   ├── OutOfRangeError(IndexError, RuntimeError)        a label, token or position beyond what the model has
    │   ├── TensorShapeError(RuntimeError)                   labels or inputs of another shape than is needed
    │   ├── TensorTypeError(RuntimeError, TypeError)         labels or inputs of another type than is needed
    │   ├── ForwardCallError(TypeError)                      columns that forward does not take
    │   └── MissingLabelsError(ModelOutputError, TypeError)  a batch without labels, so without a loss
    ├── ModelOutputError(ValueError)                         a model whose output holds no usable loss
    │   ├── NoLossError                                      named outputs, none of which is a loss
    │   ├── LossTypeError(TypeError)                         a loss that is not a tensor
    │   ├── LossShapeError(RuntimeError)                     a loss of several numbers
    │   │   └── BareTensorError                              a model that returns one tensor, and no loss function
    │   ├── PredictionShapeError(RuntimeError)               predictions of batches that cannot be concatenated
    │   ├── RowsMeetError                                    a model or loss whose rows depend on one another
    │   └── NoGradientError(RuntimeError)                    a loss that no trainable parameter influences
    ├── MetricError(ValueError)                              a metric that is missing, misspelt or of the wrong type
    │   ├── NoSuchMetricError(KeyError)                      a metric that no evaluation returned
    │   ├── ObjectiveError(KeyError)                         an objective that is not among the metrics
    │   ├── OutputNameError(KeyError)                        an output that the model does not return
    │   ├── TooFewRowsError                                  more rows may be enough
    │   ├── MetricResultError(TypeError)                     a metric function that did not return a dict
    │   └── MetricFunctionError(TypeError)                   a metric function that cannot be called, or never would be
    ├── NonFiniteError(ArithmeticError)                      NaN or infinity for more steps than the patience allows
    │   └── NonFiniteModuleError(ValueError)                 a module whose numbers are not finite
    ├── CheckpointError(ValueError, OSError)                 a checkpoint that is missing, damaged or of another model
    │   ├── StateError(TypeError)                            a state that JSON cannot hold
    │   ├── DiskError                                        a checkpoint that the disk refused
    │   ├── OtherProcessError                                another process could not write its part
    │   └── OutputDirError                                   a directory that the run cannot write to
    │       ├── OutputDirPermissionError(PermissionError)    no permission to write
    │       ├── OutputDirParentError(NotADirectoryError)     a file in place of a parent directory
    │       ├── OutputDirExistsError(FileExistsError)        a file in place of the directory
    │       └── OutputDirNotFoundError(FileNotFoundError)    a place where no directory can be made
    └── SpillError(OSError)                                  no disk space for what an evaluation keeps
"""

from __future__ import annotations


class OstinatoError(Exception):
    """The base class of errors: what happened, why, and what to do.

    Args:
        what: What happened.
        why: Why it happened.
        fix: What to do.

    >>> raise ConfigError(what="save_steps=0 never saves", why="steps are counted from 1", fix="set save_steps=500")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.ConfigError: save_steps=0 never saves
      why: steps are counted from 1
      fix: set save_steps=500
    """

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        lines = [what]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[OstinatoError], tuple[str, str, str]]:
        return type(self), (self.what, self.why, self.fix)


class ConfigError(OstinatoError, ValueError):
    """Arguments that contradict one another or cannot be honoured."""


class NotSupportedError(ConfigError, NotImplementedError):
    """Something that Ostinato does not do (yet); the fix names what to use instead."""


class MissingPackageError(ConfigError, ImportError):
    """A package that is needed for what was requested, and is not installed."""


class DataError(OstinatoError, ValueError):
    """A data set, row or batch that the model cannot take."""


class ModelOutputError(OstinatoError, ValueError):
    """A model whose output holds no usable loss."""


class MetricError(OstinatoError, ValueError):
    """A metric that is missing, misspelt or of the wrong type."""


class OutOfRangeError(DataError, IndexError, RuntimeError):
    """A label, token or position beyond what the model has."""


class TensorShapeError(DataError, RuntimeError):
    """Labels or inputs of another shape than the loss or the layer that takes them."""


class TensorTypeError(DataError, RuntimeError, TypeError):
    """Labels or inputs of another type than the loss or the layer that takes them."""


class ForwardCallError(DataError, TypeError):
    """Columns that forward does not take."""


class MissingLabelsError(DataError, ModelOutputError, TypeError):
    """A batch without labels, so without a loss."""


class NoGradientError(ModelOutputError, RuntimeError):
    """A loss on which no trainable parameter has an influence."""


class LossFunctionError(ConfigError, TypeError):
    """A `compute_loss_func` that cannot be called as it has to be."""


class MetricFunctionError(MetricError, TypeError):
    """A metric function that cannot be called, or never would be."""


class NonFiniteError(OstinatoError, ArithmeticError):
    """The loss or the gradient was not a finite number for too many steps in a row."""


class CheckpointError(OstinatoError, ValueError, OSError):
    """A checkpoint that is missing, damaged or of another model."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


def add_note(error: BaseException, text: str) -> None:
    """Add a line that Python prints below an exception that is not ours; adding it again has no effect.

    >>> error = KeyError("text")
    >>> add_note(error, "ostinato: while row 7 of the training set was read")
    >>> error.__notes__
    ['ostinato: while row 7 of the training set was read']
    """
    notes = error.__dict__.setdefault("__notes__", [])  # what BaseException.add_note does, which Python 3.10 lacks
    if text not in notes:
        notes.append(text)
