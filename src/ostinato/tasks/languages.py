"""Languages of multilingual tokenizers (mBART, M2M100, NLLB): which are read and written, and their token ids."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from ostinato import ConfigError

from .rows import format_names

_MISSING = object()


def is_multilingual(tokenizer: Any) -> bool:
    """Return whether a tokenizer needs a language."""
    return getattr(tokenizer, "src_lang", _MISSING) is not _MISSING


def set_languages(tokenizer: Any, source: str | None, target: str | None, flags: tuple[str, str]) -> None:
    """Set the languages that a multilingual tokenizer reads and writes; `flags` are the options that name them."""
    for code, flag in zip((source, target), flags, strict=True):
        if code is None:
            raise ConfigError(
                what=f"{flag} is missing",
                why=f"{type(tokenizer).__name__} needs the language of every text",
                fix=f"add {flag} CODE, such as {format_names(_list_languages(tokenizer))}",
            )
        find_token_id(tokenizer, code, flag)
    tokenizer.src_lang, tokenizer.tgt_lang = source, target


def find_token_id(tokenizer: Any, token: str, flag: str) -> int:
    """Return the id of a token or of a language; `flag` is the option that names it."""
    known = tokenizer.get_vocab()
    for form in (token, f"__{token}__"):  # the form of languages in M2M100
        if form in known:
            return known[form]
    languages = _list_languages(tokenizer)
    near = get_close_matches(token, languages or list(known), n=1)
    raise ConfigError(
        what=f"{flag} {token}: the tokenizer has no such token",
        why=f"it has {format_names(languages)}" if languages else f"its vocabulary has {len(known):,} others",
        fix=f"did you mean {near[0]!r}?" if near else "use one of its tokens",
    )


def _list_languages(tokenizer: Any) -> list[str]:
    """Return the codes of a tokenizer's languages; none if it is not multilingual."""
    if not is_multilingual(tokenizer):
        return []
    named = getattr(tokenizer, "lang_code_to_id", None)
    return list(named) if named else [token for token in tokenizer.all_special_tokens if token[0] not in "<["]
