"""Fixtures for every room, and the police: a test leaves the process as it found it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of processes that tests start: there are tests on every core

import torch
import torch._dynamo  # the first optimizer of a process loads it, and it sets an environment variable

from tests.support import seeding  # noqa: F401
from tests.support.apis import LIBRARIES, Api, guest
from tests.support.records import make_recorder

torch.set_num_threads(1)

pytest_plugins = ["tests.support.references_plugin", "tests.support.device_plugin", "tests.support.case_sample"]

# Tests write thousands of small files and wait until they are on the disk. Memory will do, where there is enough.
MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores Ctrl-C for what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set by pytest itself while a test runs, by torch when its optimizers are first used, and by scikit-learn, which
# transformers and `datasets` import late.
VOLATILE = {
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
}

# One per process, started by tqdm (in `datasets`) at its first bar and kept.
SINGLETONS = {"tqdm_monitor"}


# Rooms whose files take longest. Files are handed out whole to the processes that run the tests: what begins last
# should not be what everybody waits for.
LONGEST = ("faults", "tutorials", "distributed", "compat", "docs", "contract", "integration")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first."""
    here = Path(__file__).parent
    rooms = {room: place for place, room in enumerate(LONGEST)}
    items.sort(key=lambda item: rooms.get(item.path.relative_to(here).parts[0], len(rooms)))


def pytest_collection_finish() -> None:
    """Half a million objects that were imported need not be looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


# ------------------------------------------------------------------------------------------------------ two libraries


@pytest.fixture(params=LIBRARIES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """The library under test: everything that uses it runs once with transformers and once with ostinato."""
    if request.param == "transformers":
        pytest.importorskip("transformers")
    with guest(request.param):
        library = Api(request.param, tmp_path)
        library.set_seed(42)
        yield library


@pytest.fixture
def ours(tmp_path: Path) -> Api:
    """Ostinato alone, for what only it promises."""
    library = Api("ostinato", tmp_path)
    library.set_seed(42)
    return library


@pytest.fixture
def recorder(api: Api) -> Any:
    """A callback that writes down every event: name, step, epoch, flags, names of its keywords."""
    return make_recorder(api.TrainerCallback)


# -------------------------------------------------------------------------------------------------------- the police


@pytest.fixture(autouse=True)
def no_leaked_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} - VOLATILE
    for name in changed:
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
    assert not changed, f"the test changed environment variables: {sorted(changed)}"


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = _wait_until_empty(
        lambda: [t for t in threading.enumerate() if t not in before and t.name not in SINGLETONS]
    )
    assert not left, f"the test left threads running: {[thread.name for thread in left]}"


@pytest.fixture(autouse=True)
def no_changed_numerics() -> Iterator[None]:
    before = _numerics()
    yield
    after = _numerics()
    torch.use_deterministic_algorithms(before["deterministic algorithms"])
    torch.set_default_dtype(before["default dtype"])
    torch.set_num_threads(before["threads"])
    torch.set_grad_enabled(before["gradients enabled"])
    changed = {name: value for name, value in after.items() if value != before[name]}
    assert not changed, f"the test changed torch's global settings: {changed}"


@pytest.fixture(autouse=True)
def no_leaked_process_group() -> Iterator[None]:
    yield
    initialised = torch.distributed.is_available() and torch.distributed.is_initialized()
    if initialised:
        torch.distributed.destroy_process_group()
    assert not initialised, "the test left a process group behind"


def _numerics() -> dict[str, Any]:
    return {
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients enabled": torch.is_grad_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
    }


def _wait_until_empty(look: Callable[[], list[Any]], seconds: float = 2.0) -> list[Any]:
    """Threads that are ending get a moment to end; what hangs on unreachable objects (a loader's workers) goes."""
    if look():
        gc.collect()
    end = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return found
