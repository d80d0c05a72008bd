"""Tokens, keys and passwords, which must not be written to files or logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# `pad_token` and similar names are not secrets.
_SECRET = re.compile(r"(^|_)(hub_token|auth_token|access_token|api_token|api_?key|password|secret)$", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether an argument of this name holds a secret.

    >>> is_secret("hub_token"), is_secret("wandb_api_key"), is_secret("pad_token"), is_secret("max_steps")
    (True, True, False, False)
    """
    return bool(_SECRET.search(name))


def redact(name: str) -> str:
    """Return the placeholder of a secret: `<HUB_TOKEN>`."""
    return f"<{name.upper()}>"


def format_argument(name: str, value: Any) -> str:
    """Return `name=value` for a message, without secrets."""
    return f"{name}={redact(name)}" if is_secret(name) or name.endswith("_token") else f"{name}={value!r}"


# Keys with known prefixes: Hugging Face, OpenAI, GitHub, GitLab, AWS, Slack, Google.
_KEY = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{30,})"
)
_IN_ADDRESS = re.compile(r"(\w+://[^/\s:@]*):[^/\s@]+@")  # scheme://user:password@host


def remove_keys(text: str) -> str:
    """Replace keys that are recognized by their prefix.

    >>> remove_keys("login with hf_abcdefghijklmnopqrst failed")
    'login with <SECRET> failed'
    """
    return _IN_ADDRESS.sub(r"\1:<SECRET>@", _KEY.sub("<SECRET>", text))


def remove_secrets(command: Sequence[str]) -> list[str]:
    """Return the words of a command line without the values of secret options.

    >>> remove_secrets(["train.py", "--hub_token", "abc", "--api-key=xyz", "--seed", "1"])
    ['train.py', '--hub_token', '<HUB_TOKEN>', '--api-key=<API_KEY>', '--seed', '1']
    """
    shown_words, hidden = [], None
    for word in command:
        option, equals, _ = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        is_option = option.startswith("-") and (is_secret(name) or name.endswith("token"))
        if hidden is not None and not word.startswith("--"):
            shown_words.append(redact(hidden))
        elif (is_option and equals) or (not option.startswith("-") and equals and is_secret(name)):
            shown_words.append(f"{option}={redact(name)}")
        else:
            shown_words.append(remove_keys(word))
        hidden = name if is_option and not equals else None
    return shown_words
