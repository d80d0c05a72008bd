"""Names of our own arguments in the argument classes of client libraries: ours yield, and the list of them is short.

A name that yields can only be reached as `ostinato.NAME`, so an argument of ours gets no name that a client has
already. `packing` is the exception: TRL, LLaMA-Factory and ms-swift have it too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KNOWN = {"packing"}


@pytest.mark.slow
def test_no_further_name_of_ours_is_one_of_a_client(tmp_path: Path) -> None:
    if find_spec("trl") is None:
        pytest.skip("no client library is installed: make compat")
    file = tmp_path / "names.json"
    ended = subprocess.run(
        [sys.executable, str(HERE / "names_of_clients.py"), str(file)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1] / "src"),
            "HF_HUB_OFFLINE": "1",
            "DISABLE_VERSION_CHECK": "1",
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    classes = json.loads(file.read_text(encoding="utf-8"))

    assert classes["trl.trainer.sft_config.SFTConfig"] == ["packing"]
    assert {path: names for path, names in classes.items() if set(names) - KNOWN} == {}
