"""Record a call of a model, and convert exceptions to findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from torch import nn

from ..core.errors import OstinatoError
from ..core.tracebacks import is_ours, list_frames
from .batch_report import Finding, Stage

_MAX_LENGTH = 300


@dataclass
class RecordedCall:
    """The first call of a model while it was recorded."""

    given: dict[str, Any] | None = None
    outputs: Any = None
    calls: int = 0


@contextmanager
def record_call(model: nn.Module) -> Iterator[RecordedCall]:
    """Record the arguments and the result of the model's calls inside the block.

    >>> import torch
    >>> layer = nn.Linear(2, 1)
    >>> with record_call(layer) as seen:
    ...     _ = layer(input=torch.ones(1, 2))
    >>> list(seen.given), tuple(seen.outputs.shape), seen.calls
    (['input'], (1, 1), 1)
    """
    seen = RecordedCall()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.calls += 1
        if seen.given is None:
            seen.given = {**{f"[{place}]": one for place, one in enumerate(args)}, **kwargs}

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        if seen.outputs is None:
            seen.outputs = outputs

    hooks = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def build_finding(error: Exception, stage: Stage) -> Finding:
    """Convert an exception to a finding: ours with what, why and fix, others with their message and origin."""
    notes = [str(note).removeprefix("ostinato: ") for note in getattr(error, "__notes__", ())]
    if isinstance(error, OstinatoError):
        return Finding(stage, error.what, "; ".join([error.why, *notes] if error.why else notes), error.fix)
    message = str(error).strip() or "without a message"
    shown = message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]}..."
    return Finding(
        stage, f"{type(error).__name__}: {' '.join(shown.split())}", "; ".join([_describe_origin(error), *notes])
    )


def _describe_origin(error: Exception) -> str:
    """Return where an exception was raised: the innermost frame of the user's own code, if there is one."""
    theirs = [entry for entry in list_frames(error) if not is_ours(entry)]
    own = [entry for entry in theirs if "site-packages" not in entry.tb_frame.f_code.co_filename] or theirs
    if not own:
        return "raised inside the library"
    code = own[-1].tb_frame.f_code
    return f"raised in {code.co_name} ({PurePath(code.co_filename).name}, line {own[-1].tb_lineno})"
