"""One run at a time in a directory: real processes, real kills."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import filelock
import pytest

from ostinato.checkpoint import lock as lock_module
from ostinato.checkpoint import lock_holder
from ostinato.checkpoint.atomic import sweep_leftovers
from ostinato.checkpoint.file_names import LOCK_NAME
from ostinato.checkpoint.lock import RunLock
from ostinato.checkpoint.lock_holder import Holder, _read_process_start
from ostinato.core.errors import ConfigError
from ostinato.core.notices import forget_notices

SOURCE = str(Path(lock_module.__file__).parents[2])

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks and signals as POSIX has them")

HOLD = """
import sys
from ostinato.checkpoint.lock import RunLock
assert "torch" not in sys.modules
with RunLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""

TRY = """
import os, sys
from ostinato.checkpoint.lock import RunLock
from ostinato.checkpoint.lock_holder import Holder
from ostinato.core.errors import ConfigError
if len(sys.argv) > 2:
    Holder.current()  # loads what Python may not be allowed to read later
    os.setuid(int(sys.argv[2]))
try:
    with RunLock(sys.argv[1]) as lock:
        print("held" if lock.held else "not locked")
except ConfigError as error:
    print(error)
"""

FORKING = """
import os, sys, time
from ostinato.checkpoint.lock import RunLock
lock = RunLock(sys.argv[1])
lock.acquire()
child = os.fork()
if child == 0:
    assert not lock.held
    lock.refresh()
    if sys.argv[2] == "releases":
        lock.release()  # as a worker that leaves through the context manager of its parent
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def fresh_notices() -> None:
    forget_notices()


@contextlib.contextmanager
def running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_line(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def attempt(directory: Path, *arguments: object) -> str:
    """What another process gets to hear."""
    with running(TRY, directory, *arguments) as process:
        return process.communicate()[0].strip()


def pretend(directory: Path, holder: Holder) -> Path:
    path = directory / LOCK_NAME
    holder.write(path)
    return path


# ---- one process -------------------------------------------------------------------------------------------------


def test_the_file_says_who_is_there_and_goes_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "a" / "run"
    with RunLock(out) as lock:
        assert lock.held
        content = json.loads((out / LOCK_NAME).read_text())
        assert (content["pid"], content["host"]) == (os.getpid(), socket.gethostname())
        assert content["started"].endswith("UTC")
    assert not lock.held
    assert os.listdir(out) == []
    assert capsys.readouterr().err == "", "a run that is alone hears nothing of locks"


def test_runs_one_after_the_other_share_a_directory(tmp_path: Path):
    lock = RunLock(tmp_path)
    for _ in range(2):
        with lock, contextlib.suppress(KeyError):
            raise KeyError
        with RunLock(tmp_path):
            pass
    lock.release()  # once more does no harm
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_run_within_a_run_is_refused(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    outer = RunLock(tmp_path / "out")
    with outer:
        for inner in (outer, RunLock(tmp_path / "out"), RunLock(tmp_path / "link")):
            with pytest.raises(ConfigError) as caught:
                inner.acquire()
            assert caught.value.what == f"there is another run in {inner.directory}"
            assert caught.value.why.startswith("this process is already training there")
            assert caught.value.fix == "wait until it ends, or give this run another output_dir"
        with RunLock(tmp_path / "elsewhere"):
            pass
        assert outer.held
        assert "is training there" in attempt(tmp_path / "out"), "being asked must not cost the lock"
    with RunLock(tmp_path / "link"):
        pass


def test_of_many_threads_one_gets_it(tmp_path: Path):
    start, end, outcomes = threading.Barrier(8), threading.Barrier(8), []

    def run() -> None:
        start.wait(10)
        try:
            with RunLock(tmp_path):
                outcomes.append("held")
                end.wait(10)
        except ConfigError:
            outcomes.append("refused")
            end.wait(10)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held"] + ["refused"] * 7
    assert os.listdir(tmp_path) == []


# ---- several processes -------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_and_told_who_the_first_is(tmp_path: Path):
    with running(HOLD, tmp_path) as first:
        assert read_answer(first) == "held"
        content = json.loads((tmp_path / LOCK_NAME).read_text())
        with pytest.raises(ConfigError) as caught:
            RunLock(tmp_path).acquire()
        assert caught.value.why == (
            f"process {first.pid} on {socket.gethostname()} (since {content['started']}) is training there"
        )
        assert LOCK_NAME in caught.value.fix
        first.communicate()  # its input ends, and so does the run
    assert first.returncode == 0
    with RunLock(tmp_path) as lock:
        assert lock.held


def test_the_lock_of_a_killed_run_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture):
    with running(HOLD, tmp_path) as first:
        assert read_answer(first) == "held"
        first.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # dead, but not buried: it has a pid and a start
        with RunLock(tmp_path) as lock:
            assert lock.held
            assert json.loads(lock.path.read_text())["pid"] == os.getpid()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"process {first.pid} on " in lines[0] and "is gone; its lock is taken over" in lines[0]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("child", ["stays", "releases"])
def test_a_forked_child_neither_frees_nor_keeps_the_lock(tmp_path: Path, child: str):
    with running(FORKING, tmp_path, child) as parent:
        orphan = int(read_answer(parent))
        try:
            with pytest.raises(ConfigError, match=f"process {parent.pid} on"):
                RunLock(tmp_path).acquire()
            parent.kill()
            parent.wait()
            os.kill(orphan, 0)  # lives, and has inherited the descriptor
            with RunLock(tmp_path) as lock:
                assert lock.held
                assert "is training there" in attempt(tmp_path)
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_a_run_in_a_forked_child_of_a_run_is_refused(tmp_path: Path):
    script = """
import os, sys
from ostinato.checkpoint.lock import RunLock
from ostinato.core.errors import ConfigError
with RunLock(sys.argv[1]) as lock:
    child = os.fork()
    if child == 0:
        try:
            RunLock(sys.argv[1]).acquire()
        except ConfigError as error:
            print(error.why, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(lock.held, flush=True)
"""
    with running(script, tmp_path) as process:
        assert f"process {process.pid} on" in read_answer(process)
        assert read_answer(process) == "True"


def test_a_program_that_starts_itself_anew_gets_its_lock_back(tmp_path: Path):
    script = """
import os, sys
from ostinato.checkpoint.lock import RunLock
lock = RunLock(sys.argv[1])
lock.acquire()
print(lock.held, flush=True)
if len(sys.argv) == 2:
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], sys.argv[1], "again"])
"""
    with running(script, tmp_path) as process:
        assert [read_answer(process), read_answer(process)] == ["True", "True"]


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_processes_one_gets_it(tmp_path: Path, stale: bool):
    """Every round all of them try at once, over and over; a lock left behind makes them all want to take it over."""
    script = """
import sys
from ostinato.checkpoint.lock import RunLock
from ostinato.core.errors import ConfigError
print("ready", flush=True)
for _ in sys.stdin:
    lock = RunLock(sys.argv[1])
    try:
        lock.acquire()
        print("held" if lock.held else "not locked", flush=True)
    except ConfigError:
        print("refused", flush=True)
    sys.stdin.readline()
    lock.release()
    print("done", flush=True)
"""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    holder = replace(Holder.current(), pid=dead.pid)
    dead.wait()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(script, tmp_path)) for _ in range(4)]
        assert [read_answer(process) for process in processes] == ["ready"] * 4
        for _ in range(20):
            if stale:
                pretend(tmp_path, holder)
            for step in ("try", "release"):
                for process in processes:
                    send_line(process)
                answers = [read_answer(process) for process in processes]
                if step == "try":
                    assert sorted(answers) == ["held"] + ["refused"] * 3
            assert os.listdir(tmp_path) == []


def test_ending_and_beginning_at_once_never_lets_two_in(tmp_path: Path):
    """Locks come and go as fast as they can; whoever has one writes its name into a file that must stay its own."""
    script = """
import sys
from pathlib import Path
from ostinato.checkpoint.lock import RunLock
from ostinato.core.errors import ConfigError
out, me, held = Path(sys.argv[1]), sys.argv[2], 0
while held < 60:
    try:
        with RunLock(out / "run") as lock:
            held += lock.held
            (out / "inside").write_text(me)
            assert (out / "inside").read_text() == me
    except ConfigError:
        pass
print("alone", flush=True)
"""
    with running(script, tmp_path, "first") as first, running(script, tmp_path, "second") as second:
        assert (read_answer(first), read_answer(second)) == ("alone", "alone")


def test_a_file_that_its_holder_removes_just_now_is_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Opened by us, removed by the one that ended, locked by us: that would keep nobody out."""
    real, opened = os.open, []

    def open_late(path: object, *arguments: int) -> int:
        opened.append(real(path, *arguments))  # type: ignore[arg-type]
        if len(opened) == 1:
            os.unlink(path)  # type: ignore[arg-type]
        return opened[-1]

    monkeypatch.setattr(os, "open", open_late)
    with RunLock(tmp_path) as lock:
        monkeypatch.undo()
        assert len(opened) == 2 and lock.held
        assert "is training there" in attempt(tmp_path)


def test_reading_the_file_does_not_cost_the_lock(tmp_path: Path):
    """Uploading a directory reads and closes its files, which would free a POSIX record lock."""
    with RunLock(tmp_path) as lock:
        lock.path.read_text()
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(lock.path).acquire(blocking=False)
        assert f"process {os.getpid()} on" in attempt(tmp_path)


def test_a_run_whose_lock_was_lost_is_told_of_the_other_run(tmp_path: Path, capsys: pytest.CaptureFixture):
    """As on a file system that drops locks: the file of this run has been written over by another one."""
    with RunLock(tmp_path) as lock:
        pretend(tmp_path, ELSEWHERE)
        for _ in range(2):
            lock._next_refresh = 0
            lock.refresh()
        assert not lock.held
    (line,) = capsys.readouterr().err.splitlines()
    assert f"another run has started in {tmp_path}: process 12 on node7" in line
    assert (tmp_path / LOCK_NAME).exists(), "it belongs to the other run"


def test_refreshing_touches_the_file_and_not_too_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = [1000.0]
    monkeypatch.setattr(lock_module.time, "monotonic", lambda: clock[0])
    lock = RunLock(tmp_path)
    lock.refresh()  # nothing to do before and after
    touched = []
    with lock:
        for seconds in (0, 9, 2, 3, 8):
            clock[0] += seconds
            os.utime(lock.path, (0, 0))
            lock.refresh()
            touched.append(lock.path.stat().st_mtime > 0)
    assert touched == [False, False, True, False, True]
    lock.refresh()


def test_a_pid_that_was_given_out_again_is_not_the_holder(tmp_path: Path, capsys: pytest.CaptureFixture):
    if Holder.current().process_start is None:
        pytest.skip("nobody can say here when a process was started")
    with running("import sys; sys.stdin.read()") as other:
        alive = replace(Holder.current(), pid=other.pid, process_start=_read_process_start(other.pid))
        pretend(tmp_path, alive)
        with pytest.raises(ConfigError, match=f"process {other.pid} on"):
            RunLock(tmp_path).acquire()
        pretend(tmp_path, replace(alive, process_start="1"))
        with RunLock(tmp_path) as lock:
            assert lock.held
    assert "is gone; its lock is taken over" in capsys.readouterr().err


def test_without_start_times_the_operating_system_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock_holder, "_read_process_start", lambda pid: None)
    parent = replace(Holder.current(), pid=os.getppid())
    assert parent.find_state(is_unlocked=True) == "gone"
    assert replace(parent, pid=2**31 - 1).find_state(is_unlocked=False) == "gone"


def test_the_same_pid_in_another_container_is_another_process(tmp_path: Path):
    elsewhere = replace(Holder.current(), namespace="pid:[1]")
    assert elsewhere.find_state(is_unlocked=True) == "gone"  # one kernel, so its lock would be seen
    assert elsewhere.find_state(is_unlocked=False) == "unknown"


# ---- other machines ----------------------------------------------------------------------------------------------

ELSEWHERE = Holder(12, "node7", "2026-01-14 09:30:05 UTC", "77", "another boot", None)


def test_a_silent_run_of_another_machine_is_taken_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    path = pretend(tmp_path, ELSEWHERE)
    long_ago = time.time() - 601
    os.utime(path, (long_ago, long_ago))
    monkeypatch.setattr(lock_module.time, "sleep", lambda seconds: pytest.fail("nothing to wait for"))
    with RunLock(tmp_path) as lock:
        assert lock.held
    (line,) = capsys.readouterr().err.splitlines()
    assert "process 12 on node7 (since 2026-01-14 09:30:05 UTC), which was training there, is gone" in line


def test_a_run_of_another_machine_that_gives_a_sign_of_life_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = pretend(tmp_path, ELSEWHERE)
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))

    monkeypatch.setattr(lock_module.time, "sleep", sleep)
    with pytest.raises(ConfigError, match=r"process 12 on node7 .* is training there"):
        RunLock(tmp_path).acquire()
    assert len(looks) == 3
    assert json.loads(path.read_text())["host"] == "node7"


def test_one_that_gives_none_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    pretend(tmp_path, ELSEWHERE)
    clock = [0.0]
    monkeypatch.setattr(lock_module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(lock_module.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    with RunLock(tmp_path) as lock:
        assert lock.held
        assert clock[0] == pytest.approx(60, abs=1), "watched for as long as it says"
    watching, taken = capsys.readouterr().err.splitlines()
    assert "process 12 on node7" in watching and "watching for up to 60 s" in watching
    assert "is gone; its lock is taken over" in taken


def test_one_that_ends_meanwhile_makes_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = pretend(tmp_path, ELSEWHERE)
    monkeypatch.setattr(lock_module.time, "sleep", lambda seconds: path.unlink())
    with RunLock(tmp_path) as lock:
        assert lock.held


# ---- where locks are hard to have ----------------------------------------------------------------------------------


def test_a_file_system_without_locks_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for _ in range(2):
        with RunLock(tmp_path) as lock:
            assert not lock.held, "so nobody sweeps what may be another's"
            assert "is training there" in attempt(tmp_path), "the file still tells"
    (line,) = capsys.readouterr().err.splitlines()
    assert "file system without locks" in line
    with running("import sys; sys.stdin.read()") as other:
        pretend(tmp_path, replace(Holder.current(), pid=other.pid, process_start=_read_process_start(other.pid)))
        with pytest.raises(ConfigError, match=f"process {other.pid} on"):
            RunLock(tmp_path).acquire()


@pytest.mark.parametrize("what", ["read-only", "link", "pipe", "directory"])
def test_a_lock_that_cannot_be_had_is_noted_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, what: str
):
    path = tmp_path / LOCK_NAME
    if what == "read-only":
        real = os.open

        def read_only(name: object, flags: int, *rest: int) -> int:
            if flags & os.O_CREAT and str(name).endswith(LOCK_NAME):
                raise OSError(errno.EROFS, "Read-only file system")
            return real(name, flags, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", read_only)
    elif what == "link":
        path.symlink_to(tmp_path / "target")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = os.listdir(tmp_path)
    for _ in range(2):
        with RunLock(tmp_path) as lock:
            assert not lock.held
            with pytest.raises(ConfigError, match="this process is already training there"):
                RunLock(tmp_path).acquire()
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be locked" in line
    assert os.listdir(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
def test_the_lock_of_another_user_is_respected():
    with tempfile.TemporaryDirectory() as out:  # nobody gets into pytest's own
        os.chmod(out, 0o777)
        with RunLock(out) as lock:
            lock.path.chmod(0o644)
            assert f"process {os.getpid()} on" in attempt(Path(out), 65534)
            lock.path.chmod(0o600)
            assert attempt(Path(out), 65534) == "not locked"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"format": 99, "pid": 1}',
        '{"format": 1, "pid": -1}',
        '{"format": 1, "pid": "1"}',
        "\0" * 100,
    ],
    ids=["empty", "half", "list", "deep", "future", "group", "text", "zeros"],
)
def test_a_file_that_says_nothing_is_nobodys(tmp_path: Path, content: str):
    (tmp_path / LOCK_NAME).write_text(content)
    with RunLock(tmp_path) as lock:
        assert lock.held
        assert json.loads(lock.path.read_text())["pid"] == os.getpid()


def test_what_the_file_says_cannot_garble_the_terminal(tmp_path: Path):
    with running("import sys; sys.stdin.read()") as other:
        start = _read_process_start(other.pid)
        pretend(
            tmp_path, replace(Holder.current(), pid=other.pid, process_start=start, host="\x1b[31mred\n" + "x" * 999)
        )
        with pytest.raises(ConfigError) as caught:
            RunLock(tmp_path).acquire()
        assert "\x1b" not in str(caught.value) and len(str(caught.value).splitlines()) == 3
        assert len(caught.value.why) < 300


def test_a_file_removed_by_hand_frees_the_directory(tmp_path: Path):
    with running(HOLD, tmp_path) as first:
        assert read_answer(first) == "held"
        (tmp_path / LOCK_NAME).unlink()
        with RunLock(tmp_path) as lock:
            first.communicate()
            assert first.returncode == 0
            assert lock.path.exists(), "the first run must not remove the file of the second"


def test_the_file_is_no_leftover(tmp_path: Path):
    with RunLock(tmp_path) as lock:
        assert sweep_leftovers(tmp_path) == []
        assert lock.path.exists()
