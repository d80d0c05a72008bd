"""Short tracebacks: which frames go, and that nothing else changes."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from types import CodeType

import pytest

from ostinato.core import tracebacks
from ostinato.core.tracebacks import ShortTraceback, is_ours, list_frames, shorten_traceback

OURS = str(Path(tracebacks.__file__).parents[1] / "somewhere.py")
THEIRS = "/home/somebody/script.py"


def chain(*places: tuple[str, str], error: Exception | None = None):
    """A function that calls itself through files and functions of these names, and raises at the end."""
    error = error if error is not None else ValueError("the end")

    def end() -> None:
        raise error

    call = end
    for file, name in reversed(places):
        call = frame(file, name, call)
    return call


def frame(file: str, name: str, inner):
    source = f"def {name}():\n    _next()\n"
    names: dict = {"_next": inner}
    code: CodeType = compile(source, file, "exec")
    exec(code, names)
    return names[name]


def ours(*names: str) -> list[tuple[str, str]]:
    return [(OURS, name) for name in names]


def theirs(*names: str) -> list[tuple[str, str]]:
    return [(THEIRS, name) for name in names]


def names_after(call, *, within=ShortTraceback) -> list[str]:
    with pytest.raises(ValueError) as caught, within():
        call()
    return [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)[1:-1]]


def test_middle_frames_are_removed() -> None:
    call = chain(*ours(*"abcdefghij"), *theirs("forward"))
    assert names_after(call) == ["a", "b", "c", "h", "i", "j", "forward"]


@pytest.mark.parametrize("count", [1, 5, 6])
def test_six_frames_are_kept(count: int) -> None:
    names = list("abcdef")[:count]
    assert names_after(chain(*ours(*names), *theirs("forward"))) == [*names, "forward"]


def test_user_frames_are_kept() -> None:
    call = chain(*theirs("main"), *ours(*"abcd"), *theirs("override"), *ours(*"efgh"), *theirs("forward", "layer"))
    assert names_after(call) == ["main", "a", "b", "c", "override", "f", "g", "h", "forward", "layer"]


def test_frames_of_contextlib_and_torch_in_between_are_removed() -> None:
    torch_loader = ("/x/torch/utils/data/dataloader.py", "fetch")
    call = chain(*ours(*"abcd"), (contextlib.__file__, "inner"), *ours("e"), torch_loader, *ours(*"fgh"))
    assert names_after(call) == ["a", "b", "c", "f", "g", "h"]


def test_frames_at_the_ends_are_kept() -> None:
    call = chain(*ours(*"ab"), (contextlib.__file__, "inner"), *ours(*"cdefgh"), *theirs("x"))
    assert names_after(call) == ["a", "b", "inner", "c", "f", "g", "h", "x"]


def test_full_tracebacks_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_FULL_TRACEBACK", "1")
    assert names_after(chain(*ours(*"abcdefghij"))) == list("abcdefghij")
    monkeypatch.setenv("OSTINATO_FULL_TRACEBACK", "0")
    assert names_after(chain(*ours(*"abcdefghij"))) == ["a", "b", "c", "h", "i", "j"]


def test_nested() -> None:
    """An evaluation inside of training shortens once inside and once outside."""
    inner = chain(*ours(*"klmnopqrst"), *theirs("metric"))

    def evaluate() -> None:
        with ShortTraceback():
            inner()

    call = evaluate
    for name in reversed("abcdefg"):
        call = frame(OURS, name, call)
    assert names_after(call) == ["a", "b", "c", "evaluate", "r", "s", "t", "metric"]


def test_the_same_exception_is_raised() -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError) as caught, ShortTraceback():
        chain(*ours(*"abcdefgh"), error=error)()
    assert caught.value is error
    assert caught.value.__context__ is None


def test_causes_are_shortened() -> None:
    def translate() -> None:
        try:
            chain(*ours(*"abcdefghij"))()
        except ValueError as error:
            raise KeyError("other words") from error

    with pytest.raises(KeyError) as caught, ShortTraceback():
        translate()
    cause = caught.value.__cause__
    assert cause is not None
    assert [entry.name for entry in traceback.extract_tb(cause.__traceback__)][1:-1] == list("abchij")


def test_errors_that_refer_to_one_another() -> None:
    one, other = ValueError(), KeyError()
    one.__context__, other.__context__ = other, one
    shorten_traceback(one)


def test_without_an_error_nothing_happens() -> None:
    with ShortTraceback() as entered:
        assert entered is None


def test_is_ours() -> None:
    with pytest.raises(ValueError) as caught:
        chain(*ours("a"), *theirs("b"))()
    assert [is_ours(entry) for entry in list_frames(caught.value)] == [False, True, False, False]
