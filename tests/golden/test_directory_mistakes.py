"""What a user sees when the output directory or a checkpoint in it is the trouble; before the first step."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ostinato
from ostinato import Trainer, TrainerCallback, TrainingArguments
from tests.support import tiny
from tests.support.launcher import ROOT
from tests.support.run_files import listed

ROWS = tiny.regression_rows(8)


class NoStep(TrainerCallback):
    """Nothing of this may happen."""

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("a step was begun")


def trainer(directory: Any, *, callbacks: list[Any] | None = None, **given: Any) -> Trainer:
    args = TrainingArguments(
        **{"output_dir": str(directory), "use_cpu": True, "max_steps": 4, "save_steps": 2, **given}
    )
    return Trainer(tiny.regression(), args, train_dataset=ROWS, callbacks=callbacks)


def text_of(error: BaseException, home: Path) -> str:
    """The text, with what differs from run to run replaced by its name."""
    text = str(error).replace(str(home), "HOME").replace(str(os.getpid()), "PID")
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|host \S+", "...", text)


def refused(call: Any) -> ostinato.OstinatoError:
    with pytest.raises(ostinato.OstinatoError) as refusal:
        call()
    ours = [frame for frame in refusal.traceback if "/ostinato/" in str(frame.path)]
    assert len(ours) <= 6
    return refusal.value


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    error = refused(trainer(tmp_path / "out", callbacks=[NoStep()]).train)
    assert text_of(error, tmp_path) == (
        "output_dir 'HOME/out' cannot be written to\n"
        "  why: HOME/out is a file, not a directory\n"
        "  fix: give another output_dir, or move that away"
    )
    assert isinstance(error, OSError) and (tmp_path / "out").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a place where nobody can write")
def test_a_directory_where_nobody_can_write(tmp_path: Path) -> None:
    error = refused(trainer("/proc/ostinato", callbacks=[NoStep()]).train)
    assert isinstance(error, OSError)
    assert error.what and error.why and error.fix and "/proc" in str(error)


def test_resuming_with_nothing_there(tmp_path: Path) -> None:
    error = refused(lambda: trainer(tmp_path, callbacks=[NoStep()]).train(resume_from_checkpoint=True))
    assert text_of(error, tmp_path) == (
        "No valid checkpoint found in output directory (HOME)\n"
        "  why: resume_from_checkpoint=True takes the newest complete checkpoint-N directory, and there is none\n"
        "  fix: check output_dir, or start a new run with resume_from_checkpoint=None"
    )


def test_resuming_from_a_path_that_is_none(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    wanted = tmp_path / "checkpoint-3"
    error = refused(lambda: trainer(tmp_path, callbacks=[NoStep()]).train(resume_from_checkpoint=str(wanted)))
    assert text_of(error, tmp_path) == (
        "Can't find a valid checkpoint at HOME/checkpoint-3\n"
        "  why: it is not a directory\n"
        "  fix: there is HOME/checkpoint-2, HOME/checkpoint-4; or resume_from_checkpoint=True for the newest in "
        "output_dir"
    )


def test_resuming_from_a_checkpoint_with_a_file_cut_short(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    damaged = tmp_path / "checkpoint-4" / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    error = refused(lambda: trainer(tmp_path, callbacks=[NoStep()]).train(resume_from_checkpoint=str(damaged.parent)))
    assert "optimizer.safetensors" in error.what + error.why and error.fix
    assert isinstance(error, OSError) and isinstance(error, ValueError)


def test_resuming_with_the_newest_half_written_takes_the_one_before(tmp_path: Path, capfd) -> None:
    trainer(tmp_path).train()
    (tmp_path / "checkpoint-4" / "manifest.json").unlink(missing_ok=True)
    (tmp_path / "checkpoint-4" / "trainer_state.json").unlink()
    capfd.readouterr()
    resumed = trainer(tmp_path)
    resumed.train(resume_from_checkpoint=True)
    said = capfd.readouterr().err
    assert "checkpoint-4" in said and "checkpoint-2: step 2 of 4" in said
    assert resumed.state.global_step == 4


SECOND_RUN = """
import sys
sys.path.insert(0, {root!r})
from tests.support import tiny
from ostinato import Trainer, TrainingArguments
args = TrainingArguments({directory!r}, use_cpu=True, max_steps=2)
try:
    Trainer(tiny.regression(), args, train_dataset=tiny.regression_rows(8)).train()
except ValueError as error:
    print(error)
"""


def test_a_second_run_in_the_same_directory(tmp_path: Path) -> None:
    code = SECOND_RUN.format(root=str(ROOT), directory=str(tmp_path))
    said: list[str] = []

    class StartsAnother(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
                said.append(done.stdout)

    trainer(tmp_path, callbacks=[StartsAnother()]).train()
    what, why, fix = said[0].strip().splitlines()
    assert what.startswith("there is another run in") and str(tmp_path) in what
    assert f"process {os.getpid()}" in why
    assert fix.startswith("  fix: ")
    assert listed(tmp_path) == ["checkpoint-2", "checkpoint-4"]


def test_a_new_run_in_a_used_directory_keeps_what_is_there(tmp_path: Path, capfd) -> None:
    trainer(tmp_path).train()
    before = (tmp_path / "checkpoint-4" / "model.safetensors").read_bytes()
    capfd.readouterr()
    trainer(tmp_path, save_total_limit=1, seed=7).train()
    lines = capfd.readouterr().err.splitlines()
    assert any("checkpoint" in line and "run" in line for line in lines)
    kept = [path.read_bytes() for path in tmp_path.rglob("checkpoint-4/model.safetensors")]
    assert before in kept and len(kept) == 2


def test_a_state_that_was_edited_by_hand_is_taken_at_its_word_and_said(tmp_path: Path, capfd) -> None:
    trainer(tmp_path, max_steps=2).train()
    path = tmp_path / "checkpoint-2" / "trainer_state.json"
    content = json.loads(path.read_text())
    content["global_step"] = 5
    path.write_text(json.dumps(content))
    capfd.readouterr()
    resumed = trainer(tmp_path, max_steps=8, per_device_train_batch_size=2, save_strategy="no")
    resumed.train(resume_from_checkpoint=str(path.parent))
    assert "trainer_state.json in" in (said := capfd.readouterr().err) and "its step 5" in said
    assert resumed.state.global_step == 8
    assert resumed.samples_at(6) == trainer(tmp_path, max_steps=8, per_device_train_batch_size=2).samples_at(6)


def test_a_state_that_is_no_state_any_more_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=2).train()
    path = tmp_path / "checkpoint-2" / "trainer_state.json"
    path.write_text(path.read_text()[:-20])
    error = refused(lambda: trainer(tmp_path, callbacks=[NoStep()]).train(resume_from_checkpoint=str(path.parent)))
    assert "trainer_state.json" in str(error)


def test_an_edited_state_is_not_found_by_itself(tmp_path: Path, capfd) -> None:
    trainer(tmp_path).train()
    path = tmp_path / "checkpoint-4" / "trainer_state.json"
    path.write_text(path.read_text() + " ")
    capfd.readouterr()
    trainer(tmp_path).train(resume_from_checkpoint=True)
    assert "checkpoint-2: step 2 of 4" in capfd.readouterr().err
