"""`import ostinato.dropin`, as the first line of a script, replaces transformers' Trainer by Ostinato's.

    import ostinato.dropin

    from transformers import Trainer, TrainingArguments  # Ostinato's

It applies to every module of the process, so libraries that subclass `transformers.Trainer` use Ostinato's.
`ostinato exec SCRIPT` does the same without a change to the script; `ostinato exec --list` shows the names.

If parts of transformers were imported before, names are replaced in all modules that imported them. Classes that were
already derived from transformers' are not changed, which is reported.
"""

from __future__ import annotations

from .compat.install import are_names_installed, install_names, remove_names
from .compat.name_map import MODULES
from .core.notices import note

__all__ = ["install", "is_installed", "remove"]


def install() -> None:
    """Install Ostinato's names, as `import ostinato.dropin` does. A second call has no effect.

    >>> ostinato.dropin.install()  # doctest: +SKIP
    ostinato: transformers' Trainer, TrainingArguments and 108 other names are Ostinato's (ostinato exec --list)
    """
    if are_names_installed():
        return
    install_names()
    count = len({name for names in MODULES.values() for name in names})
    note(f"transformers' Trainer, TrainingArguments and {count - 2} other names are Ostinato's (ostinato exec --list)")


def remove() -> None:
    """Restore transformers' names for later imports. Objects made with Ostinato's classes stay as they are.

    >>> ostinato.dropin.remove()  # doctest: +SKIP
    """
    remove_names()


def is_installed() -> bool:
    """Return whether Ostinato's names are installed.

    >>> ostinato.dropin.is_installed()  # doctest: +SKIP
    True
    """
    return are_names_installed()


install()
