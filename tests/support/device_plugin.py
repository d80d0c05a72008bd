"""Run tests with an accelerator: `pytest --device=cuda`, `--device=privateuse1` (both pretended), or `--device=real`.

The pretended device belongs to the whole session, hence to a process of its own, and is hostile: what may happen late
does. `tests/device` is collected only with a device; any other test may run with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support import pretend_device
from tests.support.apis import QUIET
from tests.support.device_differences import DIFFERENCES, NOT_RUN, find_reason
from tests.support.device_session import begin_session

CHOICES = ("none", *pretend_device.KINDS, "real")
ON_CPU = ("use_cpu", "dataloader_pin_memory")  # arguments of tests that keep trainers from using a device
FOLDER = Path(__file__).parents[1] / "device"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=CHOICES, default="none", help="the accelerator that the tests run on")


def pytest_configure(config: pytest.Config) -> None:
    kind = config.getoption("--device")
    if kind == "real" and not torch.accelerator.is_available():
        raise pytest.UsageError("--device=real: torch finds no accelerator on this machine")
    if kind in pretend_device.KINDS:
        begin_session(kind)
    if kind != "none":
        for name in ON_CPU:  # let trainers of tests use the device, as a user's do
            QUIET.pop(name)


def pytest_report_header(config: pytest.Config) -> str | None:
    kind = config.getoption("--device")
    return None if kind == "none" else f"device: {kind}, {torch.accelerator.current_accelerator()}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    without = config.getoption("--device") == "none"
    return True if without and FOLDER in (collection_path, *collection_path.parents) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the differences that are listed, and no others."""
    kind = config.getoption("--device")
    for item in items if kind != "none" else []:
        if (reason := find_reason(item.nodeid, DIFFERENCES[kind])) is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        if (reason := find_reason(item.nodeid, NOT_RUN[kind])) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> torch.device:
    """Where trainers of tests compute: on the accelerator, or on the CPU without one."""
    has_device = request.config.getoption("--device") != "none"
    return request.getfixturevalue("device") if has_device else torch.device("cpu")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The accelerator that the tests run on; without one a test is skipped."""
    if request.config.getoption("--device") == "none":
        pytest.skip("needs --device")
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return torch.device(found.type, 0)


@pytest.fixture
def pretended(request: pytest.FixtureRequest, device: torch.device) -> torch.device:
    """The pretended device, for tests of what a real one does not show."""
    if request.config.getoption("--device") == "real":
        pytest.skip("a real device does not show this")
    return device


@pytest.fixture(autouse=True)
def hostile_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test finds the device alive and hostile."""
    if request.config.getoption("--device") not in pretend_device.KINDS:
        yield
        return
    pretend_device.set_hostile(True)
    yield
    pretend_device.restore()
