"""`argument()`: the single declaration of an argument, which everything else reads.

The checks of single values (`validate.py`), the conversion of words into enums (`derive.py`), the command line
(`parser.py`), `args.explain()` (`describe.py`) and the comparison with a checkpoint (`resume_diff.py`) read it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from ..core.choices import Choice
    from .resume_rules import ResumeRule

DATA_PARALLEL_ONLY = "weights are divided among processes by FSDP2 only"
USE_DATA_PARALLEL = "start with torchrun; shard='full' divides the model among the processes"


@dataclass(frozen=True)
class Range:
    """The numbers that an argument accepts: bounds are included, unless they are called `above` or `below`.

    >>> 0.5 in Range(minimum=0, below=1), 1 in Range(minimum=0, below=1), 0.5 in Range(whole=True)
    (True, False, False)
    >>> print(Range(minimum=1, whole=True))
    a whole number of at least 1
    """

    minimum: float = -math.inf
    maximum: float = math.inf
    above: float | None = None
    below: float | None = None
    whole: bool = False
    finite: bool = False

    def is_number(self, value: object) -> bool:
        """Return whether the type fits; numpy's numbers do."""
        return isinstance(value, Integral if self.whole else Real)

    def __contains__(self, value: Any) -> bool:
        return (
            self.is_number(value)
            and self.minimum <= value <= self.maximum  # false for NaN
            and (self.above is None or self.above < value)
            and (self.below is None or value < self.below)
            and (not self.finite or math.isfinite(value))
        )

    def __str__(self) -> str:
        noun = "a whole number" if self.whole else "a finite number" if self.finite else "a number"
        bounds = [f"of at least {self.minimum:g}"] if self.minimum > -math.inf else []
        bounds += [f"of at most {self.maximum:g}"] if self.maximum < math.inf else []
        bounds += [f"above {self.above:g}"] if self.above is not None else []
        bounds += [f"below {self.below:g}"] if self.below is not None else []
        return f"{noun} {' and '.join(bounds)}".rstrip()


@dataclass(frozen=True)
class Unsupported:
    """Why any true value is refused, and what to do instead."""

    why: str
    fix: str


@dataclass(frozen=True)
class Declaration:
    """What is declared of an argument besides its name, type, default and help."""

    on_resume: ResumeRule | None
    number: Range | None = None
    choices: Sequence[str] | type[Choice] | None = None
    kind: type[list[Any]] | type[dict[Any, Any]] | None = None
    allow_none: bool = False
    off: float | None = None
    unsupported: Unsupported | None = None


class ArgumentField(dataclasses.Field):  # type: ignore[type-arg]
    """A dataclass field with a declaration.

    The declaration is not part of the metadata: transformers' `HfArgumentParser` passes all of the metadata on to
    `argparse`, which refuses names that it does not know.
    """

    __slots__ = ("declaration",)

    def __init__(self, field: dataclasses.Field[Any], declaration: Declaration) -> None:
        for name in dataclasses.Field.__slots__:  # those of the running Python
            setattr(self, name, getattr(field, name))
        self.declaration = declaration


def argument(
    default: Any = MISSING,
    *,
    help: str,
    on_resume: ResumeRule | None,
    number: Range | None = None,
    choices: Sequence[str] | type[Choice] | None = None,
    kind: type[list[Any]] | type[dict[Any, Any]] | None = None,
    allow_none: bool = False,
    off: float | None = None,
    unsupported: Unsupported | None = None,
    default_factory: Callable[[], Any] | None = None,
    repr: bool = True,
    **parser: Any,
) -> Any:
    """Declare an argument of `TrainingArguments` or of a subclass.

    Args:
        default: The value when none is given.
        help: What it changes, for `--help` and `args.explain()`.
        on_resume: What a value other than the checkpoint's means when a run is resumed (`resume_rules.py`). None: it
            changes no number.
        number: The numbers it accepts.
        choices: The words it accepts, or an enum, to whose member the word is converted. With `kind=list`, the items.
        kind: Whether it holds a list or a dict, so that text can be refused.
        allow_none: Whether None is accepted although the default is another value.
        off: The number that turns it off, named when None is given instead.
        unsupported: Why any true value is refused.
        default_factory: Makes the default, where it is mutable.
        repr: Whether the generated `repr` of a subclass shows it.
        **parser: Further keywords of `argparse.ArgumentParser.add_argument`, and `aliases`.

    Returns:
        A dataclass field.

    Example:
        >>> from ostinato.arguments.resume_rules import change_numbers
        >>> @dataclass
        ... class MyArguments:
        ...     dropout: float = argument(0.1, number=Range(0, 1), help="Dropout.", on_resume=change_numbers)
        >>> MyArguments().dropout
        0.1
    """
    metadata = {"help": help, **parser}
    if choices is not None and not isinstance(choices, type) and kind is not list:
        metadata["choices"] = list(choices)  # an enum's are found by its type
    field = (
        dataclasses.field(default=default, repr=repr, metadata=metadata)
        if default_factory is None
        else dataclasses.field(default_factory=default_factory, repr=repr, metadata=metadata)
    )
    return ArgumentField(field, Declaration(on_resume, number, choices, kind, allow_none, off, unsupported))


def get_declarations(cls: type) -> Mapping[str, Declaration]:
    """Return the declarations of a class's arguments, by name and in their order.

    A subclass that gives an inherited argument another default keeps its declaration.
    """
    found: dict[str, Declaration] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= {field.name: field.declaration for field in dataclasses.fields(base) if _is_declared(field)}
    return found


def _is_declared(field: dataclasses.Field[Any]) -> TypeGuard[ArgumentField]:
    return isinstance(field, ArgumentField)


def get_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a dataclass field; `MISSING` if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()
