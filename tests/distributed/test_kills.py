"""Processes that are killed many times: `make long`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.device_session import ROOT
from tests.support.long_tests import long_only

KILLS = 20


@long_only
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", ["random_kills", "killed_saves"])
def test_a_job_that_is_killed_ends_as_one_that_is_not(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"tests.distributed.{program}", str(tmp_path / "out"), str(KILLS)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    print(ended.stdout)
    assert f"{KILLS} kills" in ended.stdout.splitlines()[-1]
