"""transformers' side of a comparison: recorded by `make record`, run live where no recording applies.

A recording of a test applies if versions and numerics of the machine are those of the recording (`recordings.py`), and
if the code of the test is still the same (`source_digests.py`). What was recorded is what calls of `recall` returned,
by the test that called it and the number of the call. Some calls stay live, and their recording says why: a value that
cannot be written down faithfully (`json_values.py`), a script that changes something outside itself, which the test
might look at, and one that calls the library under test, which is not to be taken from the past.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.digests import hash_of
from tests.support.json_values import CannotRecordError, decode, encode
from tests.support.recordings import Recordings
from tests.support.records import Record
from tests.support.script_effects import describe_outside, watch_calls
from tests.support.source_digests import digest_test

MODES = ("recorded", "live", "record")
FIXTURE = " (fixture)"  # how names of fixtures end
PRODUCT = Path(importlib.util.find_spec("ostinato").origin).parent  # type: ignore[union-attr,arg-type]

_active: References | None = None


def activate(references: References | None) -> None:
    """Say what `recall` uses from now on: nothing, until a session of pytest has begun."""
    global _active
    _active = references


def recall(
    run: Callable[[], Any], script: Callable[..., Any] | None = None, *, name: str = "", code: Sequence[str] = ()
) -> Any:
    """Return what `run()` returns, which runs transformers: from a recording if one applies, else by running it.

    Args:
        run: Runs transformers and returns what the test needs of it.
        script: What `run` runs; by default that is itself.
        name: What it is called in the recording; by default as the script is.
        code: What another process runs, if one does: this code counts, and it cannot change anything in this one.
    """
    if _active is None:
        return run()
    if code:
        return _active.recall(run, None, f"{name} {hash_of(''.join(code).encode())}")
    script = script or run
    return _active.recall(run, script, name or getattr(script, "__qualname__", type(script).__name__))


def restore(value: Any) -> Any:
    """Return a value as it was recorded."""
    found = decode(value)
    if isinstance(found, Record):
        found.recorded = True
    return found


@dataclass
class Owner:
    """Whose calls are counted: a test, or a fixture that several tests share."""

    path: Path
    name: str
    function: str | None = None  # None: a fixture, whose code is what the tests of its file share
    calls: list[dict[str, Any]] = field(default_factory=list)
    passed: bool = True

    def find_source(self) -> str:
        return digest_test(self.path, self.function)


class References:
    """The recordings of a session: those that are there, and those that are made."""

    def __init__(self, mode: str, recordings: Recordings, tests: Path) -> None:
        self.mode = mode
        self.recordings = recordings
        self.tests = tests
        self.unusable = recordings.explain_unusable() if mode == "recorded" else None
        self.owners: list[Owner] = []
        self.within = False  # a call that is being recorded
        self.made: dict[str, dict[str, Any]] = {}  # by file and owner
        self.counts: Counter[str] = Counter()

    def recall(self, run: Callable[[], Any], script: Callable[..., Any] | None, name: str) -> Any:
        """See the function of this name."""
        if not self.owners or self.within or self.mode == "live" or self.unusable is not None:
            return run()
        owner = self.owners[-1]
        call: dict[str, Any] = {"of": name}
        owner.calls.append(call)
        if self.mode == "record":
            return self._record(call, run, script)
        found = self._find(owner)
        return restore(found["value"]) if found is not None and "value" in found else run()

    def _find(self, owner: Owner) -> dict[str, Any] | None:
        """Return what is recorded of the last call, if it still applies."""
        entry = self.recordings.find(self._file(owner), owner.name)
        if entry is None:
            self.counts["new"] += 1
            return None
        place, calls = len(owner.calls) - 1, entry["calls"]
        is_same_call = place < len(calls) and calls[place]["of"] == owner.calls[-1]["of"]
        if not is_same_call or entry["source"] != owner.find_source():
            self.counts["stale"] += 1
            return None
        return calls[place]

    def _record(self, call: dict[str, Any], run: Callable[[], Any], script: Callable[..., Any] | None) -> Any:
        before = describe_outside(script)
        self.within = True
        try:
            with watch_calls(PRODUCT) as called:
                value = run()
        except BaseException as error:
            call["live"] = f"raises {type(error).__name__}"
            raise
        finally:
            self.within = False
        after = describe_outside(script)
        changed = [variable for variable in before if before[variable] != after[variable]]
        if called:
            call["live"] = f"calls {min(called)}"
        elif changed:
            call["live"] = f"changes {', '.join(sorted(changed))}"
        else:
            try:
                call["value"] = encode(value)
            except CannotRecordError as error:
                call["live"] = str(error)
        return restore(call["value"]) if "value" in call else value  # the test sees what it will see again

    @contextlib.contextmanager
    def own_calls(self, owner: Owner) -> Iterator[None]:
        """Let calls be those of a test or of a fixture; they are recorded if all went well."""
        self.owners.append(owner)
        try:
            yield
        finally:
            self.owners.pop()
        if self.mode == "record" and owner.calls and owner.passed:
            entry = {"source": owner.find_source(), "calls": owner.calls}
            self.made.setdefault(self._file(owner), {})[owner.name] = entry

    def _file(self, owner: Owner) -> str:
        return owner.path.relative_to(self.tests).as_posix()

    def add(self, counts: dict[str, int], made: dict[str, dict[str, Any]]) -> None:
        """Add what another process of the session counted and made."""
        self.counts.update(counts)
        for file, entries in made.items():
            self.made.setdefault(file, {}).update(entries)

    def write(self) -> None:
        """Write what was made, one file for each file of tests; drop what no longer applies."""
        self.recordings.begin()
        for file, entries in self.made.items():
            self.recordings.update(file, entries, lambda name, entry, file=file: self._applies(file, name, entry))
        self.recordings.remove_unless(lambda file: (self.tests / file).is_file())

    def _applies(self, file: str, name: str, entry: dict[str, Any]) -> bool:
        function = None if name.endswith(FIXTURE) else name.partition("[")[0]
        return entry["source"] == digest_test(self.tests / file, function)

    def explain(self) -> str:
        """Say where transformers' side comes from in this session."""
        version = self.recordings.environment["versions"]["transformers"]
        if self.mode == "recorded":
            return f"live: {self.unusable}" if self.unusable else f"recorded with transformers {version}"
        return f"live: transformers {version} is run" + " and recorded" * (self.mode == "record")

    def summarize(self) -> str | None:
        """Say what should be recorded, or what was."""
        if self.mode == "record":
            calls = [call for entries in self.made.values() for entry in entries.values() for call in entry["calls"]]
            live = sum("live" in call for call in calls)
            return f"{len(calls) - live} references were recorded; {live} stay live"
        if total := self.counts.total():
            return f"{total} references ran live ({self.counts['stale']} stale, {self.counts['new']} new): make record"
        return None
