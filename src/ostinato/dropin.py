"""`import ostinato.dropin`, as the first line of a script: its transformers Trainer is then ours.

    import ostinato.dropin

    from transformers import Trainer, TrainingArguments  # Ostinato's

It holds for every module of the process, so libraries that make subclasses of `transformers.Trainer` train on ours.
`ostinato exec SCRIPT` does the same for a script one does not want to touch; `ostinato exec --list` shows the names.

Some part of transformers may have been imported before: names are then corrected wherever they were imported to.
Classes that were already made from transformers' stay what they are, and a line says so.
"""

from __future__ import annotations

from .compat.install import is_in_place, put_in_place, take_away
from .compat.name_map import MODULES
from .core.notices import note

__all__ = ["install", "is_installed", "remove"]


def install() -> None:
    """Put our names in place; `import ostinato.dropin` has done so. A second time changes nothing.

    >>> ostinato.dropin.install()
    ostinato: transformers' Trainer, TrainingArguments and 73 other names are Ostinato's (ostinato exec --list)
    """
    if is_in_place():
        return
    put_in_place()
    count = len({name for names in MODULES.values() for name in names})
    note(f"transformers' Trainer, TrainingArguments and {count - 2} other names are Ostinato's (ostinato exec --list)")


def remove() -> None:
    """Give transformers its names back, for what is imported from now on; what was made with ours stays."""
    take_away()


def is_installed() -> bool:
    """Whether our names are in place."""
    return is_in_place()


install()
