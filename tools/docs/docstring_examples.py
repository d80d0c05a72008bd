"""An extension of griffe: the `>>>` examples of docstrings become blocks of code, with or without a heading."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(
    r"(?:^(?P<indent>[ ]*)Examples?:\n)?"  # a heading, which is left out
    r"(?P<code>^[ ]*>>> .*\n?(?:^(?![ ]*$).*\n?)*)",  # up to the next empty line
    re.MULTILINE,
)


def mark_examples(text: str) -> str:
    r"""Put the examples of a docstring into blocks of code. What only directs doctest is left out.

    >>> print(mark_examples("Add.\n\nExample:\n    >>> add(1, 1)  # doctest: +SKIP\n    2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> add(1, 1)
    2
    ```
    <BLANKLINE>
    """

    def mark(found: re.Match[str]) -> str:
        code = re.sub(r"[ ]*# doctest:.*$", "", textwrap.dedent(found["code"]), flags=re.MULTILINE)
        return f"```pycon\n{code.replace('<BLANKLINE>', '').strip()}\n```\n"

    return EXAMPLE.sub(mark, text)


class DocstringExamples(Extension):
    """Mark the examples of every docstring."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of an object that was read from the source (called by griffe)."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = mark_examples(obj.docstring.value)
