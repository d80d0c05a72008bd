"""Characters as the tokens of CTC: which of a text count, the vocabulary they make, and texts that do not fit it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato import ConfigError, DataError

from .models import import_transformers
from .rows import Split, format_names

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class TextCleaner:
    """Which characters of a text are to be recognized.

    >>> TextCleaner((",", "."), is_lowered=True)("Please hold,  while I try.")
    'please hold while i try'
    """

    ignored: tuple[str, ...] = ()
    is_lowered: bool = False

    def __call__(self, text: str) -> str:
        for one in self.ignored:
            text = text.replace(one, "")
        text = _SPACES.sub(" ", text).strip()
        return text.lower() if self.is_lowered else text


def parse_ignored(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the characters of --chars_to_ignore, which may be written apart or together.

    >>> parse_ignored([",", ".!"]), parse_ignored(None)
    ((',', '.', '!'), ())
    """
    return tuple(dict.fromkeys(character for word in given or () for character in word))


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens of a CTC vocabulary that are no characters. The pad token is CTC's blank."""

    unknown: str = "[UNK]"
    pad: str = "[PAD]"
    delimiter: str = "|"  # between words


def build_vocabulary(texts: Iterable[str], special: SpecialTokens) -> dict[str, int]:
    """Return a number for every character of some texts, in the order of the characters.

    >>> build_vocabulary(["ab a", "c"], SpecialTokens())
    {'|': 0, 'a': 1, 'b': 2, 'c': 3, '[UNK]': 4, '[PAD]': 5}
    """
    characters = sorted(set().union(*texts) | {" "})
    if special.delimiter in characters:
        raise ConfigError(
            what=f"the texts hold {special.delimiter!r}, which stands for the space between words",
            why="one token cannot be both",
            fix=f"add --chars_to_ignore '{special.delimiter}', or choose another --word_delimiter_token",
        )
    tokens = [special.delimiter if one == " " else one for one in characters]
    return {token: number for number, token in enumerate([*tokens, special.unknown, special.pad])}


def build_tokenizer(
    vocabulary: dict[str, int],
    special: SpecialTokens,
    language: str | None = None,
    others: Mapping[str, Any] | None = None,
) -> Any:
    """Return a tokenizer of single characters.

    With a language, its vocabulary is one of several; `others` are those of other languages.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "vocab.json"
        content = vocabulary if language is None else {**(others or {}), language: vocabulary}
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return import_transformers().Wav2Vec2CTCTokenizer(
            str(path),
            unk_token=special.unknown,
            pad_token=special.pad,
            word_delimiter_token=special.delimiter,
            bos_token=None,
            eos_token=None,
            target_lang=language,
        )


def find_unknown_characters(
    split: Split, column: str, texts: Iterable[str], tokenizer: Any
) -> Iterator[tuple[int, DataError]]:
    """Yield the rows with characters that a given vocabulary does not have, with an error."""
    known = {*tokenizer.get_vocab(), " "}
    if getattr(tokenizer, "do_lower_case", False):
        known |= {token.lower() for token in known}
    if any(len(token) > 1 for token in known - set(tokenizer.all_special_tokens)):
        return  # its tokens are no single characters
    for row, text in enumerate(texts):
        unknown = sorted(set(text) - known)
        if unknown:
            shown = format_names([repr(one) for one in unknown])
            other_case = all({one.lower(), one.upper()} & known for one in unknown)
            fix = f"add --chars_to_ignore '{''.join(unknown)}', or make a vocabulary: --train_tokenizer"
            if other_case:
                fix = "use --do_lower_case false, as it knows upper case"
            yield row, split.build_error(row, column, f"the tokenizer has no {shown}", fix)
