"""Two processes, each with a device, connected by gloo: the numbers are those of two processes on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.launcher import launch

PROGRAM = Path(__file__).with_name("two_on_device.py")

pytestmark = pytest.mark.usefixtures("pretended")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each process wrote down, on a CPU and on the device."""
    found = {}
    for where in ("cpu", "device"):
        out = tmp_path_factory.mktemp(where)
        launch(PROGRAM, out, where, nodes=True)
        found[where] = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]
    return found


@pytest.mark.parametrize("part", ["collectives", "ddp", "trainer"])
def test_numbers_are_those_of_two_on_a_cpu(reports: dict[str, Any], part: str) -> None:
    for rank in range(2):
        assert reports["device"][rank][part]["numbers"] == reports["cpu"][rank][part]["numbers"]


@pytest.mark.parametrize("part", ["collectives", "ddp"])
def test_what_processes_do_together_is_a_kernel(reports: dict[str, Any], part: str) -> None:
    assert [one[part]["waits"] for one in reports["device"]] == [0, 0]


def test_each_trainer_is_on_the_device(reports: dict[str, Any], device: torch.device) -> None:
    assert [one["trainer"]["device"] for one in reports["device"]] == [str(device)] * 2


def test_steps_do_not_wait(reports: dict[str, Any]) -> None:
    for one in reports["device"]:
        assert one["waits"] and not any(one["waits"].values()), one["waits"]
