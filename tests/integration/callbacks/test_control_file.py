"""Commands for a run that goes on, in a file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ostinato import ControlFileCallback, TrainerCallback
from ostinato.callbacks import control_file
from tests.support.resumed_runs import assert_same_weights, logs_of, make_trainer


@pytest.fixture(autouse=True)
def looks_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_file, "SECONDS_BETWEEN_LOOKS", 0.0)


class Writes(TrainerCallback):
    """Writes the file while a step is taken, as somebody at a terminal would."""

    def __init__(self, **texts: str) -> None:
        self.texts = {int(step.removeprefix("at_")): text for step, text in texts.items()}
        self.saved, self.evaluated = [], []

    def on_optimizer_step(self, args, state, control, **kwargs) -> None:
        if state.global_step + 1 in self.texts:
            Path(args.output_dir, "control").write_text(self.texts[state.global_step + 1])

    def on_save(self, args, state, control, **kwargs) -> None:
        self.saved.append(state.global_step)

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        self.evaluated.append(state.global_step)


def run(out: Path, writes: Writes, **options):
    trainer = make_trainer(out, [writes, ControlFileCallback()], **{"save_steps": 100, **options})
    trainer.train()
    return trainer


def test_save_evaluate_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writes = Writes(at_2="save\nevaluate\n\n# a remark\nlog\n")
    trainer = run(tmp_path, writes, eval_strategy="steps", eval_steps=100, logging_steps=100)
    assert writes.saved == [2, 6] and writes.evaluated == [2, 6]
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [2]
    assert not (tmp_path / "control").exists()
    assert (tmp_path / "control.done").read_text().splitlines() == [
        "step 2: save: done",
        "step 2: evaluate: done",
        "step 2: log: done",
    ]
    assert "step 2: control file: 'save': done" in capsys.readouterr().err


def test_what_is_not_known_is_named_and_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writes = Writes(at_2="rm -rf /\nsave now\nlr fast\nlr -1\nlr nan\n" + "x" * 500 + "\n")
    run(tmp_path, writes)
    assert writes.saved == [6]
    answers = (tmp_path / "control.done").read_text().splitlines()
    assert len(answers) == 6 and all("not done" in answer for answer in answers)
    assert "rm -rf /: not done: no such command" in answers[0]
    assert max(map(len, answers)) < 250
    assert "no such command" in capsys.readouterr().err


def test_what_cannot_be_a_terminal_s_is_not_repeated(tmp_path: Path) -> None:
    writes = Writes(at_2="\x1b[2J\x07stop\r\n\ufeffsave\u2028stop\n  # a remark\n\tlog\t\n")
    assert run(tmp_path, writes).state.global_step == 6
    answers = (tmp_path / "control.done").read_text()
    assert answers.replace("\n", "").isprintable()
    assert [line.rpartition(": ")[2] == "done" for line in answers.splitlines()] == [False, False, True]


class Puts(Writes):
    """Puts something else where the file should be."""

    def __init__(self, put) -> None:
        super().__init__()
        self.put = put

    def on_optimizer_step(self, args, state, control, **kwargs) -> None:
        if state.global_step == 1:
            self.put(Path(args.output_dir, "control"))


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    assert run(tmp_path, Puts(lambda file: file.write_bytes(b"\xff\xfe\x00" * 1000 + b"\n"))).state.global_step == 6
    assert "no such command" in (tmp_path / "control.done").read_text()


def test_a_long_file_is_not_obeyed_at_all(tmp_path: Path) -> None:
    trainer = run(tmp_path, Puts(lambda file: file.write_text("log\n" * 10_000 + "stop\n")))
    assert trainer.state.global_step == 6
    assert (tmp_path / "control.done").read_text().startswith("step 2: a file of more than 4096 bytes: not done")


def link_to_a_file(path: Path) -> None:
    path.with_name("elsewhere").write_text("stop\n")
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("put", [link_to_a_file, Path.mkdir, os.mkfifo])
def test_what_is_not_a_file_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], put) -> None:
    assert run(tmp_path, Puts(put)).state.global_step == 6
    assert os.path.lexists(tmp_path / "control"), "it is left alone"
    assert capsys.readouterr().err.count("control has no effect: it is not a file that can be read") == 1


def test_what_is_added_at_the_last_moment_is_obeyed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the file and putting it aside."""
    look = control_file._read_text

    def look_too_early(path: Path) -> str | None:
        text = look(path)
        if text is not None and path.name == "control":
            path.write_text(text + "log\n")
        return text

    monkeypatch.setattr(control_file, "_read_text", look_too_early)
    writes = Writes(at_2="save\n")
    run(tmp_path, writes)
    assert (tmp_path / "control.done").read_text().splitlines() == ["step 2: save: done", "step 2: log: done"]


def test_stop_saves_and_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    trainer = run(tmp_path / "stopped", Writes(at_4="stop"), save_strategy="epoch")
    assert trainer.state.global_step == 5, "a text without an end of line is waited for once"
    assert "control: stop: stopped after step 5 of 6, and saved checkpoint-5" in capsys.readouterr().err
    resumed = make_trainer(tmp_path / "stopped")
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(whole.model, resumed.model)


def test_a_rate_goes_on_in_the_shape_of_its_schedule(tmp_path: Path) -> None:
    trainer = run(tmp_path, Writes(at_2="lr 0.01\n"))
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    # linear from 0.05 to 0: step 3 would have had 4/6 of it, and has 0.01
    assert rates == pytest.approx([0.05, 0.05 * 5 / 6, 0.01, 0.01 * 3 / 4, 0.01 * 2 / 4, 0.01 * 1 / 4])


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant", "cosine_with_restarts"])
def test_a_changed_rate_survives_resuming(tmp_path: Path, kind: str) -> None:
    options = {"lr_scheduler_type": kind, "save_steps": 1}
    whole = run(tmp_path / "whole", Writes(at_2="lr x0.5\n"), **options)
    for step in (2, 4):
        resumed = make_trainer(tmp_path / f"{step}", [ControlFileCallback()], **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert_same_weights(whole.model, resumed.model)
        assert logs_of(whole) == logs_of(resumed)


class Sleeps:
    """Stands in for `time.sleep`: does something instead."""

    def __init__(self, then) -> None:
        self.count, self.then = 0, then

    def __call__(self, seconds: float) -> None:
        self.count += 1
        if self.count == 3:
            self.then()
        assert self.count < 100, "it sleeps for ever"


@pytest.mark.parametrize("how", ["resume", "delete"])
def test_a_pause_ends_when_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def go_on() -> None:
        assert "after step 2" in (tmp_path / "control.paused").read_text()
        assert (tmp_path / "checkpoint-2").is_dir(), "what was asked for with it is done before"
        if how == "resume":
            (tmp_path / "control").write_text("evaluate\nresume\n")
        else:
            (tmp_path / "control.paused").unlink()

    sleeps, writes = Sleeps(go_on), Writes(at_2="pause\nsave\n")
    monkeypatch.setattr(control_file.time, "sleep", sleeps)
    trainer = run(tmp_path, writes, eval_strategy="steps", eval_steps=100)
    assert sleeps.count == 3 and trainer.state.global_step == 6
    assert writes.evaluated == ([3, 6] if how == "resume" else [6])
    assert not (tmp_path / "control.paused").exists()


def test_a_pause_that_cannot_be_marked_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could end it by deleting the mark."""
    write_text = Path.write_text

    def full(path: Path, *args, **options) -> int:
        if path.name == "control.paused":
            raise OSError(28, "No space left on device")
        return write_text(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(control_file.time, "sleep", Sleeps(lambda: None))
    assert run(tmp_path, Writes(at_2="pause\n")).state.global_step == 6


def test_a_pause_is_no_time_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = 0.0, tmp_path / "control.paused"

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 1000.0
        ends.unlink()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now + time.monotonic())
    monkeypatch.setattr(control_file, "time", clock)
    trainer = make_trainer(tmp_path, [Writes(at_2="pause\n"), ControlFileCallback()], save_strategy="no")
    began = time.time()
    trainer.train()
    assert trainer._run.started - began >= 1000.0
    assert trainer._run.ledger.began - time.perf_counter() > 900.0, "the seconds of the pause are not among its own"


def test_a_signal_ends_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_file.time, "sleep", Sleeps(lambda: os.kill(os.getpid(), signal.SIGTERM)))
    with pytest.raises(SystemExit):
        run(tmp_path, Writes(at_2="pause\n"))
    assert (tmp_path / "checkpoint-3").is_dir()


@pytest.mark.parametrize("text", ["stop\n", "stop"])
def test_what_was_there_before_is_not_obeyed(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("control").write_text(text)
    assert run(tmp_path, Writes()).state.global_step == 6
    assert "written before this run began" in (tmp_path / "control.done").read_text()


def test_what_a_run_does_not_do_is_not_begun(tmp_path: Path) -> None:
    run(tmp_path, Writes(at_2="save\nevaluate\n"), save_strategy="no")
    assert (tmp_path / "control.done").read_text().count("not done: this run") == 2


def test_it_looks_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_file, "SECONDS_BETWEEN_LOOKS", 1000.0)
    looks = []
    original = control_file._read_text
    monkeypatch.setattr(control_file, "_read_text", lambda path: looks.append(path) or original(path))
    run(tmp_path, Writes())
    assert len(looks) == 2, "when training begins, and after the first step"
