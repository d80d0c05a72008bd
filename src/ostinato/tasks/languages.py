"""Tokenizers of many languages (mBART, M2M100, NLLB): which language is read and written, and the ids that say so."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from ostinato import ConfigError

from .rows import shortened

_NONE = object()


def is_multilingual(tokenizer: Any) -> bool:
    """Whether a tokenizer has to be told the language."""
    return getattr(tokenizer, "src_lang", _NONE) is not _NONE


def set_languages(tokenizer: Any, source: str | None, target: str | None, flags: tuple[str, str]) -> None:
    """Tell such a tokenizer what it reads and what it writes; `flags` say it on the command line."""
    for code, flag in zip((source, target), flags, strict=True):
        if code is None:
            raise ConfigError(
                what=f"{flag} is missing",
                why=f"{type(tokenizer).__name__} marks every text with its language",
                fix=f"add {flag} CODE, such as {shortened(_languages(tokenizer))}",
            )
        token_id(tokenizer, code, flag)
    tokenizer.src_lang, tokenizer.tgt_lang = source, target


def token_id(tokenizer: Any, token: str, flag: str) -> int:
    """The id of a token or of a language; `flag` is the option that names it."""
    known = tokenizer.get_vocab()
    for form in (token, f"__{token}__"):  # as M2M100 writes languages
        if form in known:
            return known[form]
    languages = _languages(tokenizer)
    near = get_close_matches(token, languages or list(known), n=1)
    raise ConfigError(
        what=f"{flag} {token}: the tokenizer has no such token",
        why=f"it has {shortened(languages)}" if languages else f"its vocabulary has {len(known):,} others",
        fix=f"is it {near[0]!r}?" if near else "name one of its tokens",
    )


def _languages(tokenizer: Any) -> list[str]:
    """The codes of a tokenizer's languages; none if it has but one."""
    if not is_multilingual(tokenizer):
        return []
    named = getattr(tokenizer, "lang_code_to_id", None)
    return list(named) if named else [token for token in tokenizer.all_special_tokens if token[0] not in "<["]
