"""Checkpoints that are written while training goes on: the same files, the same run, and nobody sees half of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato.checkpoint.atomic import verify
from ostinato.checkpoint.disk import Disk, Sealed, using
from ostinato.checkpoint.retention import get_last_checkpoint, list_checkpoints
from ostinato.checkpoint.tensors import read_tensors
from ostinato.core.random import RandomState
from ostinato.engine import save_outcome, saver
from tests.support import tiny
from tests.support.launcher import ROOT
from tests.support.quiet_trainer import build_quiet_trainer
from tests.support.records import assert_same
from tests.support.run_files import listed

ROWS = tiny.regression_rows(48)
SOURCE = str(Path(ostinato.__file__).parents[1])


class Watched(Disk):
    """Knows which thread wrote each file, and can be held up."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bool]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def write(self, path: Path, content: Any, *, direct: bool = False) -> Sealed:
        in_background = threading.current_thread() is not threading.main_thread()
        self.written.append((path.name, in_background))
        if in_background:
            self.reached.set()
            assert self.gate.wait(20)
        return super().write(path, content, direct=direct)

    @property
    def in_background(self) -> set[bool]:
        return {background for name, background in self.written if name == "model.safetensors"}


@pytest.fixture
def disk() -> Iterator[Watched]:
    watched = Watched()
    with using(watched):
        yield watched
        watched.gate.set()


SETTINGS = dict(per_device_train_batch_size=4, max_steps=8, save_steps=2, learning_rate=1e-2, logging_steps=3)


def build(out: Path, *, cls: Any = None, callbacks: Any = (), model: Any = None, **more: Any) -> Any:
    return build_quiet_trainer(
        out,
        model or tiny.regression(dropout=0.2),
        cls=cls or ostinato.Trainer,
        train_dataset=ROWS,
        eval_dataset=ROWS[:8],
        callbacks=list(callbacks),
        **{**SETTINGS, **more},
    )


class Looking(ostinato.TrainerCallback):
    """Looks at the checkpoint as soon as it is told of it."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        verify(Path(args.output_dir) / f"checkpoint-{state.global_step}")
        self.steps.append(state.global_step)


class SeesBest(ostinato.TrainerCallback):
    """At every event that is not a log line, the best model's directory is there."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def look(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.best_model_checkpoint is not None:
            verify(Path(state.best_model_checkpoint))
        self.seen.append(state.best_model_checkpoint)

    on_step_begin = on_step_end = on_evaluate = on_epoch_end = on_train_end = look


# ------------------------------------------------------------------------------------------------ which way it is done


def test_with_the_callbacks_there_are_by_default_it_is_done_in_the_background(tmp_path: Path, disk: Watched):
    early = ostinato.EarlyStoppingCallback(100)
    trainer = build(
        tmp_path, disable_tqdm=False, callbacks=[early], eval_strategy="steps", eval_steps=4,
        metric_for_best_model="loss", load_best_model_at_end=True,
    )  # fmt: skip
    trainer.train()
    assert disk.in_background == {True}
    assert [path.name for path in list_checkpoints(tmp_path)] == [f"checkpoint-{n}" for n in (2, 4, 6, 8)]
    for path in list_checkpoints(tmp_path):
        verify(path)


def test_whoever_listens_to_on_save_finds_it_whole_in_the_same_step(tmp_path: Path, disk: Watched):
    looking = Looking()
    build(tmp_path, callbacks=[looking]).train()
    assert looking.steps == [2, 4, 6, 8]
    assert disk.in_background == {False}


def patched(trainer: Any) -> None:
    seen = trainer.callback_handler.callbacks[0]
    seen.on_save = lambda args, state, control, **kwargs: verify(
        Path(args.output_dir) / f"checkpoint-{state.global_step}"
    )


def test_also_one_that_was_patched_in(tmp_path: Path, disk: Watched):
    trainer = build(tmp_path)
    patched(trainer)
    trainer.train()
    assert disk.in_background == {False}


class OwnCheckpoint(ostinato.Trainer):
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        verify(path)
        (path / "mine.txt").write_text("mine")


class OwnReport(ostinato.Trainer):
    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        due = self.control.should_save
        super()._maybe_log_save_evaluate(*args, **kwargs)
        if due:
            verify(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")


@pytest.mark.parametrize("cls", [OwnCheckpoint, OwnReport])
def test_whoever_comes_after_the_save_finds_it_whole(tmp_path: Path, disk: Watched, cls: Any):
    build(tmp_path, cls=cls).train()
    assert disk.in_background == {False}


class OwnModel(ostinato.Trainer):
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        (Path(output_dir or "") / "mine.txt").write_text("mine")


class OwnSave(ostinato.Trainer):
    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        assert (Path(output_dir or "") / "model.safetensors").stat().st_size > 100
        (Path(output_dir or "") / "mine.txt").write_text("mine")


class OwnOptimizer(ostinato.Trainer):
    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        assert (Path(output_dir) / "optimizer.safetensors").stat().st_size > 100
        (Path(output_dir) / "mine.txt").write_text("mine")


class OwnStreams(ostinato.Trainer):
    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        (Path(output_dir) / "mine.txt").write_text("mine")


class OwnScaler(ostinato.Trainer):
    def _save_scaler(self, output_dir: str) -> None:
        (Path(output_dir) / "mine.txt").write_text("mine")


@pytest.mark.parametrize("cls", [OwnModel, OwnSave, OwnOptimizer, OwnStreams, OwnScaler])
def test_whoever_writes_a_part_is_asked_to_and_it_counts(tmp_path: Path, disk: Watched, cls: Any):
    build(tmp_path, cls=cls).train()
    assert disk.in_background <= {False}
    for path in list_checkpoints(tmp_path):
        verify(path)
        assert "mine.txt" in json.loads((path / "MANIFEST.json").read_text())["files"]


def test_a_save_that_is_asked_for_out_of_turn_is_there_at_once(tmp_path: Path, disk: Watched):
    class Asks(ostinato.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                trainer._save_checkpoint(trainer.model, None)
                verify(tmp_path / "checkpoint-3")
                disk.written.clear()

    trainer = build(tmp_path, callbacks=[Asks()])
    trainer.train()
    assert disk.in_background == {True}
    assert (tmp_path / "checkpoint-3").exists()


# --------------------------------------------------------------------------------------------------- what is in it


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != "MANIFEST.json"}


def without_times(name: str, content: bytes) -> Any:
    if name in ("run.json", "training_args.bin"):  # they name the directory
        return None
    if name in ("trainer_state.json", "training_args.json"):
        text = json.loads(content)
        for log in text.get("log_history") or ():
            for key in [key for key in log if key.endswith(("_runtime", "_per_second"))]:
                del log[key]
        return {key: value for key, value in text.items() if key not in ("output_dir", "best_model_checkpoint")}
    return content


def adapted() -> Any:
    peft = pytest.importorskip("peft")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return peft.get_peft_model(
            tiny.gpt2(), peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
        )


@pytest.mark.parametrize(
    ("kind", "layout"),
    [*((kind, "ostinato") for kind in ("module", "tied", "bert", "gpt2", "peft")), ("module", "transformers")],
)
def test_the_files_are_those_of_a_save_that_is_waited_for(tmp_path: Path, disk: Watched, kind: str, layout: str):
    if kind in ("bert", "gpt2", "peft"):
        pytest.importorskip("transformers")

    def run(out: Path, **more: Any) -> None:
        make, rows = {
            "module": (tiny.regression, ROWS),
            "tied": (tiny.tied, tiny.language_rows()),
            "bert": (tiny.bert, tiny.classification_rows()),
            "gpt2": (tiny.gpt2, tiny.language_rows()),
            "peft": (adapted, tiny.language_rows()),
        }[kind]
        trainer = build(out, model=make(), max_steps=4, checkpoint_layout=layout, **more)
        trainer.train_dataset = rows
        trainer.train()

    run(tmp_path / "later")
    weights = "adapter_model.safetensors" if kind == "peft" else "model.safetensors"
    assert disk.written.count((weights, True)) == 2
    run(tmp_path / "now", callbacks=[Looking()])
    assert disk.written.count((weights, False)) == 2
    run(tmp_path / "hooks", cls=OwnScaler)
    for step in (2, 4):
        later, now, hooks = (files_of(tmp_path / way / f"checkpoint-{step}") for way in ("later", "now", "hooks"))
        hooks.pop("mine.txt")
        assert later.keys() == now.keys() == hooks.keys()
        for name in later:
            assert without_times(name, later[name]) == without_times(name, now[name]), name
            assert without_times(name, later[name]) == without_times(name, hooks[name]), name


def test_the_next_steps_do_not_reach_into_the_save(tmp_path: Path, disk: Watched):
    """The disk is held up until two more steps were taken; what it then writes is of the step it was taken in."""
    disk.gate.clear()
    wanted: dict[int, dict[str, torch.Tensor]] = {}

    class Steps(ostinato.TrainerCallback):
        def on_step_end(self, args: Any, trained: Any, control: Any, **kwargs: Any) -> None:
            wanted[trained.global_step] = {name: value.clone() for name, value in trainer.model.state_dict().items()}
            if trained.global_step == 2:
                averages = enumerate(state["exp_avg"] for state in trainer.optimizer.state.values())
                wanted[-2] = {str(number): average.clone() for number, average in averages}
            if trained.global_step == 4:
                assert disk.reached.wait(20)
                assert list_checkpoints(tmp_path) == [], "it was not held up"
                disk.gate.set()

    trainer = build(tmp_path, callbacks=[Steps()], max_steps=5)
    trainer.train()
    saved = read_tensors(tmp_path / "checkpoint-2" / "model.safetensors")
    assert_same(saved, dict(sorted(wanted[2].items())))
    assert not all(torch.equal(saved[name], wanted[3][name]) for name in saved)
    state = read_tensors(tmp_path / "checkpoint-2" / "optimizer.safetensors")
    averages = sorted((name for name in state if name.endswith("exp_avg")), key=lambda name: int(name.split(".")[-2]))
    assert_same({str(number): state[name] for number, name in enumerate(averages)}, wanted[-2])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_goes_on_from_it_is_the_run_never_stopped(tmp_path: Path, workers: int):
    more = dict(dataloader_num_workers=workers, max_steps=10, gradient_accumulation_steps=2)
    whole = build(tmp_path / "whole", **more)
    whole.train()
    again = build(tmp_path / "again", **more)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert_same(again.model.state_dict(), whole.model.state_dict())
    assert_same(again.optimizer.state_dict(), whole.optimizer.state_dict())


def test_saving_changes_nothing_of_the_run(tmp_path: Path):
    models, streams = [], []
    for strategy in ("steps", "no"):
        trainer = build(tmp_path / strategy, save_strategy=strategy)
        trainer.train()
        models.append(trainer.model.state_dict())
        streams.append(RandomState.capture())
    assert_same(models[0], models[1])
    assert torch.equal(streams[0].torch, streams[1].torch)
    assert streams[0].python == streams[1].python


# ------------------------------------------------------------------------------------------------------- in what order


def test_one_at_a_time_and_a_long_wait_is_told_once(
    tmp_path: Path, disk: Watched, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setattr(save_outcome, "_LONG_WAIT", 0.0)
    running: list[int] = []

    class Slow(Watched):
        def write(self, path: Path, content: Any, *, direct: bool = False) -> Sealed:
            running.append(1)
            assert len(running) == 1, "two saves at the same time"
            time.sleep(0.01)
            sealed = super().write(path, content, direct=direct)
            running.pop()
            return sealed

    with using(Slow()):
        build(tmp_path, save_steps=1).train()
    assert len(list_checkpoints(tmp_path)) == 8
    assert capsys.readouterr().err.count("training stood still for") == 1


def test_memory_is_made_ready_after_the_first_step_and_is_enough(
    tmp_path: Path, disk: Watched, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(saver, "WORTH_PREPARING", 0)
    sizes: list[int] = []

    class Sizes(ostinato.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                trainer._run.saves.wait()
            sizes.append(trainer._run.saves.memory.size)

    trainer = build(tmp_path, callbacks=[Sizes()], max_steps=6)
    trainer.train()
    assert sizes[0] == 0
    assert sizes[1] > 2**20
    assert set(sizes[1:]) == {sizes[1]}, "a save took more than what was ready"
    assert disk.in_background == {True}


def test_when_training_ends_it_is_there_and_so_is_what_follows(tmp_path: Path, disk: Watched):
    disk.gate.clear()
    threading.Timer(0.3, disk.gate.set).start()
    trainer = build(tmp_path, max_steps=4, save_steps=2, save_total_limit=1)
    trainer.train()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-4"]
    assert listed(tmp_path) == ["checkpoint-4"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ostinato")]
    assert trainer._run.saves.memory.size == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_waits_for_it_too(tmp_path: Path, disk: Watched, error: type[BaseException]):
    class Fails(ostinato.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                assert disk.reached.wait(20)
                threading.Timer(0.2, disk.gate.set).start()
                raise error("in the middle")

    disk.gate.clear()
    with pytest.raises(error, match="in the middle") as caught:
        build(tmp_path, callbacks=[Fails()]).train()
    verify(tmp_path / "checkpoint-2")
    assert listed(tmp_path) == ["checkpoint-2"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ostinato")]
    if error is RuntimeError:
        assert any("checkpoint-2" in note for note in caught.value.__notes__), "it is not said where to go on from"


def test_saving_the_model_by_hand_waits(tmp_path: Path, disk: Watched):
    class Saves(ostinato.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                threading.Timer(0.2, disk.gate.set).start()
                trainer.save_model(str(tmp_path / "model"))
                verify(tmp_path / "checkpoint-2")

    disk.gate.clear()
    trainer = build(tmp_path, callbacks=[Saves()])
    trainer.train()
    assert (tmp_path / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "schedule",
    [
        dict(eval_steps=2, save_strategy="steps", save_steps=2, save_total_limit=1),
        dict(eval_steps=1, save_strategy="steps", save_steps=3, save_total_limit=1),
        dict(eval_steps=1, save_strategy="best"),
        dict(eval_steps=1, save_strategy="no"),
    ],
    ids=lambda schedule: ",".join(f"{key}={value}" for key, value in schedule.items()),
)
def test_the_best_model_is_there_whenever_it_is_named(tmp_path: Path, disk: Watched, schedule: dict[str, Any]):
    sees, scores = SeesBest(), iter([1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 0.0, 7.0])
    kept: dict[int, dict[str, torch.Tensor]] = {}

    def compute(prediction: Any) -> dict[str, float]:
        step = trainer.state.global_step
        kept[step] = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        return {"score": next(scores)}

    trainer = build(
        tmp_path, callbacks=[sees], eval_strategy="steps", metric_for_best_model="score", load_best_model_at_end=True,
        greater_is_better=True, **schedule,
    )  # fmt: skip
    trainer.compute_metrics = compute
    trainer.train()
    assert disk.in_background == {True}
    assert sees.seen[-1] is not None
    assert_same(trainer.model.state_dict(), kept[trainer.state.best_global_step])
    if schedule["save_strategy"] != "best":
        newest = {"checkpoint-8"} if "save_steps" in schedule else set()
        assert set(listed(tmp_path)) == {Path(sees.seen[-1]).name} | newest


def test_one_that_is_still_being_written_when_it_turns_out_to_be_the_best(tmp_path: Path, disk: Watched):
    class Open(ostinato.TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            assert disk.reached.wait(20) and not list_checkpoints(tmp_path)
            disk.gate.set()

    disk.gate.clear()
    trainer = build(
        tmp_path, callbacks=[Open()], eval_strategy="epoch", save_steps=8, metric_for_best_model="loss", journal=False
    )
    trainer.train()
    assert disk.in_background == {True}
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-8")


def test_killed_while_it_is_written_the_one_before_is_found(tmp_path: Path):
    script = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
import ostinato
from tests.support import tiny
from ostinato.checkpoint.disk import Disk, using

class Stuck(Disk):
    def write(self, path, content, *, direct=False):
        if ".checkpoint-4." in str(path) and path.name == "optimizer.safetensors":
            def half():
                for piece in content:
                    yield piece[: len(piece) // 2]
                    print("writing", flush=True)
                    time.sleep(600)
            return super().write(path, half())
        return super().write(path, content, direct=direct)

args = ostinato.TrainingArguments(
    output_dir={str(tmp_path)!r}, per_device_train_batch_size=4, max_steps=6, save_steps=2, report_to="none",
    use_cpu=True, disable_tqdm=True, learning_rate=1e-2, logging_steps=3, dataloader_pin_memory=False)
with using(Stuck()):
    ostinato.Trainer(tiny.regression(dropout=0.2), args, train_dataset=tiny.regression_rows(48)).train()
"""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout is not None
        # Another thread may print between the word and the end of its line.
        assert any("writing" in line for line in iter(child.stdout.readline, ""))
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    trainer = build(tmp_path, max_steps=6)
    trainer.train(resume_from_checkpoint=True)
    whole = build(tmp_path / "whole", max_steps=6)
    whole.train()
    assert_same(trainer.model.state_dict(), whole.model.state_dict())
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_workers_may_be_forked_while_it_is_written(tmp_path: Path, disk: Watched):
    """The writer holds the disk while a new epoch starts its workers."""
    disk.gate.clear()
    threading.Timer(1.0, disk.gate.set).start()
    more: Any = dict(dataloader_num_workers=2, num_train_epochs=2, max_steps=-1, save_steps=11)
    trainer = build(tmp_path, per_device_train_batch_size=4, **more)
    trainer.train()
    assert trainer.state.global_step == 24
    for path in list_checkpoints(tmp_path):
        verify(path)
