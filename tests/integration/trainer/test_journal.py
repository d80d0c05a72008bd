"""The journal of real runs: what is written, also when they are killed, resumed, stopped, or fail."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato import Trainer, TrainerCallback
from ostinato.core.errors import ConfigError
from ostinato.core.notices import note, warn
from ostinato.journal import run_journal, writer
from ostinato.journal.journal_callback import JournalCallback
from ostinato.report.journal_reader import read_run
from tests.support import tiny
from tests.support.launcher import ROOT
from tests.support.quiet_trainer import build_quiet_trainer
from tests.support.run_files import OF_EVERY_RUN

TOKEN = "hf_" + "abcdefghij" * 3


def build(directory: Path, callbacks: list[Any] | None = None, cls: Any = Trainer, **options: Any) -> Trainer:
    settings = {
        "per_device_train_batch_size": 4,
        "max_steps": 9,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 4,
        "logging_steps": 1,
        "write_report": False,
        **options,
    }
    return build_quiet_trainer(
        directory,
        tiny.regression(dropout=0.2),
        cls=cls,
        train_dataset=tiny.regression_rows(20),
        eval_dataset=tiny.regression_rows(16),
        callbacks=callbacks,
        **settings,
    )


def events(directory: Path, kind: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    return [one for one in found if kind in (None, one["event"])]


class At(TrainerCallback):
    """Does something at a step."""

    def __init__(self, step: int, do: Any) -> None:
        self.step, self.do = step, do

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.do()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Somebody looks: the checkpoint is written before the next step."""


def test_a_whole_run_tells_all_of_it(tmp_path: Path) -> None:
    trainer = build(tmp_path, metric_for_best_model="loss", num_train_epochs=1)
    trainer.train()
    found = events(tmp_path)
    assert {one["v"] for one in found} == {1}
    assert {one["run"] for one in found} == {trainer._run_directory.run_id}
    assert [one["time"] for one in found] == sorted(one["time"] for one in found)
    start, end = found[0], found[-1]
    assert start["event"] == "start" and end["event"] == "end" and end["step"] == 9
    given = json.loads(trainer.args.to_json_string())
    assert start["arguments"] == {name.removeprefix("ostinato."): value for name, value in given.items()}
    assert start["origins"]["max_steps"] == "given" and "seed" not in start["origins"]
    assert start["plan"]["steps"] == 9 and start["plan"]["train_rows"] == 20 and start["plan"]["rows_per_step"] == 4
    assert start["plan"]["parameters"] == sum(one.numel() for one in trainer.model.parameters())
    assert start["environment"]["packages"]["torch"] == torch.__version__
    assert start["command"]["words"] and start["resumed_from"] is None
    history = {(one["step"], name): one[name] for one in trainer.state.log_history for name in one}
    for one in [one for one in found if one["event"] == "log"]:
        for name, value in one["logs"].items():
            assert value == history[one["step"], name]
        assert set(one["seconds"]) == {"computing", "data", "evaluation", "saving"}
    assert [one["step"] for one in events(tmp_path, "evaluation")] == [3, 6, 9]
    assert {one["path"] for one in events(tmp_path, "save")} == {"checkpoint-4", "checkpoint-8", "checkpoint-9"}
    best = events(tmp_path, "best")
    assert best[-1]["value"] == trainer.state.best_metric and best[-1]["metric"] == "eval_loss"
    assert [one["rows"]["done"] for one in events(tmp_path, "epoch")] == [20, 16]
    assert sum(end["seconds"].values()) <= end["time"] - start["time"] + 5


def test_sizes_of_saves_are_those_on_the_disk(tmp_path: Path) -> None:
    build(tmp_path).train()
    for one in events(tmp_path, "save"):
        on_disk = sum(file.stat().st_size for file in (tmp_path / one["path"]).iterdir())
        assert one["bytes"] == on_disk and one["seconds"] > 0


def test_it_is_in_no_checkpoint(tmp_path: Path) -> None:
    build(tmp_path, write_report=True).train()
    assert not [path for path in tmp_path.glob("*/*") if path.name in OF_EVERY_RUN]
    assert sorted(path.name for path in tmp_path.glob("*.*")) == list(OF_EVERY_RUN)


def test_switched_off_nothing_is_written(tmp_path: Path) -> None:
    trainer = build(tmp_path, journal=False, write_report=True, save_strategy="no")
    trainer.train()
    assert not list(tmp_path.iterdir())
    assert not [one for one in trainer.callback_handler.callbacks if isinstance(one, JournalCallback)]


def test_training_does_not_notice(tmp_path: Path) -> None:
    weights = []
    for name, journal in (("a", True), ("b", False)):
        trainer = build(tmp_path / name, journal=journal, write_report=journal)
        trainer.train()
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_nothing_is_written_on_steps_that_do_not_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Sizes(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sizes.append((tmp_path / "events.jsonl").stat().st_size)

    build(tmp_path, [Sizes()], logging_steps=100, eval_strategy="no", save_strategy="no", max_steps=4).train()
    assert len(set(sizes)) == 1


def test_a_run_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    class Broken(Trainer):
        def get_train_dataloader(self) -> Any:
            raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        build(tmp_path / "out", cls=Broken).train()
    assert not (tmp_path / "out").exists()


def test_secrets_are_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "t.py", "--hub_token", "verysecret", "--api_key=othersecret"])

    def say() -> None:
        warn(f"could not log in with {TOKEN}")
        raise RuntimeError(f"bad token {TOKEN}")

    with pytest.raises(RuntimeError):
        build(tmp_path, [At(2, say)], hub_token=TOKEN, write_report=True).train()
    for name in OF_EVERY_RUN:
        text = (tmp_path / name).read_text()
        assert TOKEN not in text and "verysecret" not in text and "othersecret" not in text
    assert events(tmp_path, "start")[0]["arguments"]["hub_token"] == "<HUB_TOKEN>"
    assert "<SECRET>" in events(tmp_path, "warning")[0]["text"]


@pytest.mark.parametrize("level", ["passive", "error"])
def test_what_is_said_is_heard_whatever_the_verbosity(tmp_path: Path, level: str) -> None:
    before = ostinato.logging.get_verbosity()
    try:
        build(tmp_path, [At(2, lambda: note("a thing was dropped"))], log_level=level).train()
    finally:
        ostinato.logging.set_verbosity(before)
    assert "a thing was dropped" in [one["text"] for one in events(tmp_path, "notice")]


def test_a_number_that_is_none_is_told_as_such(tmp_path: Path) -> None:
    class Bad(tiny.Regression):
        calls = 0

        def forward(self, x: Any, labels: Any = None) -> Any:
            outputs = super().forward(x, labels)
            if self.training:
                Bad.calls += 1
                if Bad.calls == 3:
                    outputs["loss"] = outputs["loss"] * math.nan
            return outputs

    trainer = build(tmp_path, eval_strategy="no", save_strategy="no", max_steps=5)
    trainer.model = trainer.model_wrapped = Bad()
    trainer.train()
    losses = [one["logs"]["loss"] for one in events(tmp_path, "log") if "loss" in one["logs"]]
    assert losses[2] == "NaN" and all(isinstance(one, float) for one in losses[:2] + losses[3:])
    assert math.isnan(read_run(tmp_path).curves["loss"].values[2])


def test_an_error_is_told_with_where_it_came_from(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        build(tmp_path, [At(5, fail)]).train()
    error = events(tmp_path)[-1]
    assert (error["event"], error["step"], error["type"], error["text"]) == (
        "error",
        5,
        "RuntimeError",
        "in the middle",
    )
    assert "in fail" in error["traceback"] and error["rows"]["done"] == 20
    assert read_run(tmp_path).outcome == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_told(tmp_path: Path, number: signal.Signals) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        build(tmp_path, [At(5, lambda: os.kill(os.getpid(), number))]).train()
    stopped = events(tmp_path)[-1]
    assert (stopped["event"], stopped["step"], stopped["signal"]) == ("stopped", 5, number.name)
    assert [one["path"] for one in events(tmp_path, "save")] == ["checkpoint-4", "checkpoint-5"]


def test_a_full_disk_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    plain = build(tmp_path / "plain")
    plain.train()

    def refuse(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.os, "write", refuse)
    trainer = build(tmp_path / "full", write_report=True, save_strategy="no")
    capsys.readouterr()
    assert trainer.train().global_step == 9
    said = capsys.readouterr().err
    assert said.count("the journal") == 1 and said.count("the report of the run") == 1
    assert [one.get("loss") for one in trainer.state.log_history] == [
        one.get("loss") for one in plain.state.log_history
    ]


def test_evaluations_after_training_belong_to_the_run(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    trainer.train()
    handles = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    trainer.evaluate()
    trainer.predict(tiny.regression_rows(8))
    assert [one["event"] for one in events(tmp_path)][-3:] == ["log", "evaluation", "prediction"]
    assert events(tmp_path, "evaluation")[-1]["training"] is False
    assert read_run(tmp_path).outcome == "finished"
    if handles:
        assert len(os.listdir("/proc/self/fd")) == handles


def test_evaluating_without_training_writes_nothing(tmp_path: Path) -> None:
    build(tmp_path).evaluate()
    assert not list(tmp_path.iterdir())


# ---- as it is described ---------------------------------------------------------------------------------------------

NESTED = ("plan", "environment", "command", "launcher", "code", "resumed_from", "forked_from")
NESTED_IN = {"log": ("seconds", "memory"), "epoch": ("rows",)}  # told once, with the event that they are of most
ON_ACCELERATORS = {"device_name", "device_memory", "cuda", "hip", "xpu", "device_peak"}
OF_OTHERS = {"null", "run_name", "max_steps", "torchrun", "given"}  # words of the tables that are no fields


def described() -> dict[str, set[str]]:
    """The fields of every event that docs/journal.md describes; those of every line are under the empty name."""
    text = (Path(__file__).parents[3] / "docs" / "journal.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    about = ""
    for line in text.partition("## Common fields")[2].partition("## Reading a journal")[0].splitlines():
        if heading := re.match(r"\*\*`(\w+)`\*\*", line):
            about = heading.group(1)
        elif line.startswith("| event |"):
            about = "each row"
        elif line.startswith("| `"):
            first, *rest = [re.findall(r"[`{\"]([a-z_]+)[`\"]", cell) for cell in line.strip("|").split(" | ")]
            last = rest[-1]
            if about == "each row":
                no_step = "no `step`" in line
                for event in first:
                    found[event] = {*last, "step"} - ({"step"} if no_step else set())
            else:
                is_nested = first[0] in (*NESTED, "seconds", "memory")
                found.setdefault(about, set()).update(first, last if is_nested else ())
    return {event: fields - OF_OTHERS for event, fields in found.items()}


def in_events(found: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The fields of every event that was written."""
    written: dict[str, set[str]] = {}
    for one in found:
        fields = written.setdefault(one["event"], set())
        nested = (*NESTED, *NESTED_IN.get(one["event"], ()))
        waiting = list(one.items())
        for name, value in waiting:
            fields.add(name)
            waiting += value.items() if name in nested and isinstance(value, dict) else ()
    return written


def test_it_is_as_it_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ConfigError(what="a", why="b", fix="c")

    def interrupt() -> None:
        raise KeyboardInterrupt

    def refuse(*args: Any) -> int:
        raise OSError

    def lose_a_line() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(writer.os, "write", refuse)
            warn("lost")
        warn("not lost")
        note("nor this")

    def count() -> None:
        trainer.state.num_input_tokens_seen = 5

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "")  # as of torchrun
    monkeypatch.setattr(run_journal, "find_code_version", lambda: {"commit": "0" * 40, "branch": "main"})
    trainer = build(tmp_path, [At(1, count), At(2, lose_a_line), At(5, interrupt)], metric_for_best_model="loss")
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    with pytest.raises(ConfigError):
        build(tmp_path, [At(7, broken)]).train(resume_from_checkpoint=True)
    trainer = build(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    trainer.predict(tiny.regression_rows(8))
    build(tmp_path / "fork").train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"), resume_mode="fork")
    written, told = in_events(events(tmp_path) + events(tmp_path / "fork")), described()
    assert set(written) | {""} == set(told)
    for event, fields in written.items():
        assert fields - told[""] == told[event] - ON_ACCELERATORS, event


# ---- going on -----------------------------------------------------------------------------------------------------


def curve(directory: Path) -> list[tuple[int, float]]:
    found = read_run(directory).curves["loss"]
    return list(zip(found.steps, found.values, strict=True))


def test_a_resumed_run_goes_on_in_the_same_file_without_doubled_points(tmp_path: Path) -> None:
    build(tmp_path / "whole").train()

    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        build(tmp_path / "cut", [At(7, fail)]).train()
    assert curve(tmp_path / "cut")[-1][0] == 6  # two steps that the checkpoint does not know
    build(tmp_path / "cut").train(resume_from_checkpoint=True)
    assert curve(tmp_path / "cut") == curve(tmp_path / "whole")
    record = read_run(tmp_path / "cut")
    assert [leg.from_step for leg in record.segments] == [0, 4]
    assert record.outcome == "finished" and record.evaluated_at == (3, 6, 9) and record.other_runs == 0
    assert [save.step for save in record.saves] == [4, 8, 9]
    assert events(tmp_path / "cut", "start")[1]["resumed_from"] == {"step": 4, "checkpoint": "checkpoint-4"}


def test_a_new_run_in_the_same_directory_is_another(tmp_path: Path) -> None:
    build(tmp_path, max_steps=5).train()
    build(tmp_path, max_steps=3).train()
    record = read_run(tmp_path)
    assert record.step == 3 and record.other_runs == 1 and len(record.segments) == 1
    first = events(tmp_path)[0]["run"]
    assert read_run(tmp_path, first).step == 5


def test_killed_in_the_middle_it_has_every_line_and_goes_on(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.integration.trainer.test_journal import At, build
from pathlib import Path
build(Path(sys.argv[1]), [At(7, lambda: os.kill(os.getpid(), 9))]).train()
"""
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert [one["step"] for one in events(out, "log") if "loss" in one["logs"]] == [1, 2, 3, 4, 5, 6]
    assert read_run(out).outcome == "open"
    with (out / "events.jsonl").open("a") as file:
        file.write('{"v":1,"run":"' + read_run(out).run_id)  # as if it had been killed while it wrote
    build(out).train(resume_from_checkpoint=True)
    build(tmp_path / "whole").train()
    assert curve(out) == curve(tmp_path / "whole")
    assert read_run(out).bad_lines == 1


def test_memory_does_not_grow_with_what_was_logged(tmp_path: Path) -> None:
    import gc
    import tracemalloc

    trainer = build(tmp_path, max_steps=1, save_strategy="no", eval_strategy="no")
    journal = next(one for one in trainer.callback_handler.callbacks if isinstance(one, JournalCallback))
    trainer.train()

    def log(times: int) -> None:
        for step in range(times):
            logs = {"loss": 1.0 / (step + 1), "grad_norm": 2.0, "epoch": step / 100}
            journal.on_log(trainer.args, trainer.state, trainer.control, logs=logs)

    log(50)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    log(2_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
