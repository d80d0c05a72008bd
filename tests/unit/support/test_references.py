"""Recorded and recalled: when a recording is used, when transformers runs live, and what is never recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import references, source_digests
from tests.support.recordings import Recordings
from tests.support.records import Record, assert_same_run
from tests.support.references import Owner, References, activate, recall
from tests.support.references_plugin import ReferencesPlugin

ENVIRONMENT = {"format": 1, "versions": {"transformers": "5.1"}, "numerics": {"results": "abc"}}
TEST = "def test_a():\n    pass\n\ndef test_b():\n    pass\n"


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The session has references of its own."""
    before = references._active
    yield
    activate(before)


class Sessions:
    """Sessions of pytest, one after the other, over a folder with one file of tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0
        self.write_test(TEST)

    def write_test(self, text: str) -> None:
        for function in (source_digests._parse, source_digests._shared_code, source_digests._reach):
            function.cache_clear()
        (self.folder / "test_file.py").write_text(text)

    def start(self, mode: str = "recorded", environment: dict[str, Any] = ENVIRONMENT) -> References:
        started = References(mode, Recordings(self.folder / "recorded", environment), self.folder)
        activate(started)
        return started

    def run_test(self, *scripts: Callable[[], Any], test: str = "test_a", passed: bool = True) -> list[Any]:
        """Run a test whose scripts run on transformers; returns what the test sees."""
        owner = Owner(self.folder / "test_file.py", test, test.partition("[")[0])
        assert references._active is not None
        with references._active.own_calls(owner):
            seen = [recall(lambda script=script: self.run(script), script) for script in scripts]
            owner.passed = passed
        return seen

    def run(self, script: Callable[[], Any]) -> Any:
        self.runs += 1
        return script()

    def record(self, *scripts: Callable[[], Any], **how: Any) -> list[Any]:
        session = self.start("record")
        seen = self.run_test(*scripts, **how)
        if session.made:
            session.write()
        self.runs = 0
        return seen


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def one() -> Any:
    return {"loss": [0.1, math.nan], "note": (1,)}


def two() -> Any:
    return Record("transformers", log_history=[{"loss": 0.5}], weights={"a": torch.ones(3)})


def test_recalled_instead_of_run(sessions: Sessions) -> None:
    recorded = sessions.record(one, two)
    session = sessions.start()
    for seen in (recorded, sessions.run_test(one, two)):
        assert repr(seen[0]) == repr(one())
        assert seen[1].recorded
        assert_same_run(seen[1], two())
    assert sessions.runs == 0
    assert session.explain() == "recorded with transformers 5.1"
    assert session.summarize() is None


def test_a_difference_is_found_and_says_where_from(sessions: Sessions) -> None:
    sessions.record(two)
    sessions.start()
    (theirs,) = sessions.run_test(two)
    ours = Record("ostinato", log_history=[{"loss": 0.5}], weights={"a": torch.tensor([1.0, 1.0, 1.0 + 1e-7])})
    with pytest.raises(AssertionError, match=r"recorded; `make contract` runs it(?s:.*)weights\.a: float32"):
        assert_same_run(theirs, ours)


def test_other_versions_and_machines_run_live(sessions: Sessions) -> None:
    sessions.record(one)
    for changed, reason in [
        (
            {"versions": {"transformers": "5.2"}},
            "live: transformers 5.2 is installed, recorded was 5.1: run make record",
        ),
        ({"numerics": {"results": "abd"}}, "live: this CPU computes other numbers than the recording's"),
    ]:
        session = sessions.start(environment={**ENVIRONMENT, **changed})
        sessions.run_test(one)
        assert session.explain() == reason
        assert session.summarize() is None, "the first line said it"
    assert sessions.runs == 2


def test_live_on_request(sessions: Sessions) -> None:
    sessions.record(one)
    session = sessions.start("live")
    sessions.run_test(one)
    assert sessions.runs == 1
    assert session.explain() == "live: transformers 5.1 is run"


def test_a_changed_test_runs_live(sessions: Sessions) -> None:
    sessions.record(one)
    sessions.write_test(TEST.replace("pass", "assert True", 1))
    session = sessions.start()
    sessions.run_test(one)
    assert sessions.runs == 1
    assert session.summarize() == "1 references ran live (1 stale, 0 new): make record"


def test_another_call_runs_live(sessions: Sessions) -> None:
    sessions.record(one)
    session = sessions.start()
    sessions.run_test(two)
    sessions.run_test(one, one)
    sessions.run_test(one, test="test_b")
    sessions.run_test(one, test="test_a[other]")
    assert sessions.runs == 4
    assert session.summarize() == "4 references ran live (2 stale, 2 new): make record"


def test_parameters_have_recordings_of_their_own(sessions: Sessions) -> None:
    def run_all(*numbers: int) -> list[Any]:
        return [sessions.run_test(lambda number=number: number, test=f"test_a[{number}]") for number in numbers]

    session = sessions.start("record")
    assert run_all(0, 1, 2) == [[0], [1], [2]]
    session.write()
    sessions.start()
    sessions.runs = 0
    assert run_all(2, 0, 1) == [[2], [0], [1]]
    assert sessions.runs == 0


def test_a_failed_test_is_not_recorded(sessions: Sessions) -> None:
    sessions.record(one, passed=False)
    sessions.start()
    sessions.run_test(one)
    assert sessions.runs == 1


def raise_error() -> Any:
    raise TypeError


def live_reasons(sessions: Sessions, *scripts: Callable[[], Any]) -> list[str]:
    sessions.record(*scripts)
    session = sessions.start()
    sessions.run_test(*scripts)
    assert sessions.runs == len(scripts)
    assert session.summarize() is None, "nothing is to be done about it"
    entry = session.recordings.find("test_file.py", "test_a")
    assert entry is not None
    return [call["live"] for call in entry["calls"]]


def test_what_stays_live(sessions: Sessions) -> None:
    from ostinato.core.random import set_seed

    seen: list[int] = []
    assert live_reasons(sessions, object, lambda: seen.append(1), lambda: set_seed(1)) == [
        "builtins.object cannot be recorded",
        "changes seen",
        "calls ostinato.core.random.set_seed",
    ]


def test_an_error_stays_live(sessions: Sessions) -> None:
    session = sessions.start("record")
    owner = Owner(sessions.folder / "test_file.py", "test_a", "test_a")
    with session.own_calls(owner), pytest.raises(TypeError):
        recall(raise_error)
    assert owner.calls == [{"of": "raise_error", "live": "raises TypeError"}]


def test_files_that_another_process_runs(sessions: Sessions, tmp_path: Path) -> None:
    script, runs = tmp_path / "script.py", []

    def recall_script() -> Any:
        session = references._active
        assert session is not None
        with session.own_calls(Owner(sessions.folder / "test_file.py", "test_a", "test_a")):
            return recall(lambda: runs.append(1) or len(runs), name="script", code=[script.read_text()])

    script.write_text("first")
    session = sessions.start("record")
    assert recall_script() == 1
    session.write()
    sessions.start()
    assert recall_script() == 1
    script.write_text("second")
    assert recall_script() == 2


def test_recording_again_drops_what_does_not_apply(sessions: Sessions) -> None:
    sessions.record(one)
    sessions.record(one, test="test_b")
    session = sessions.start()
    assert session.recordings.find("test_file.py", "test_a") is not None
    sessions.write_test(TEST.replace("pass", "assert True", 1))
    sessions.record(one, test="test_b")
    session = sessions.start()
    assert session.recordings.find("test_file.py", "test_a") is None
    assert session.recordings.find("test_file.py", "test_b") is not None


def test_processes_hand_over_what_they_made(sessions: Sessions) -> None:
    """Nobody but the process that started the others writes."""
    outputs = []
    for test in ("test_a", "test_b"):
        session = sessions.start("record")
        sessions.run_test(one, test=test)
        output: dict[str, str] = {}
        ReferencesPlugin(session).pytest_sessionfinish(_session(workeroutput=output))
        outputs.append(output)
    assert not (sessions.folder / "recorded").exists()
    controller = ReferencesPlugin(sessions.start("record"))
    for output in outputs:
        controller.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    controller.pytest_testnodedown(SimpleNamespace())  # it crashed
    controller.pytest_sessionfinish(_session())
    assert controller.references.summarize() == "2 references were recorded; 0 stay live"
    session = sessions.start()
    assert all(session.recordings.find("test_file.py", test) for test in ("test_a", "test_b"))


def _session(**config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(**config))
