"""What all trackers have in common: names, secrets, one process, resumed runs, and failures that stop nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.notices import forget_notices
from ostinato.trackers import find_callback_class
from ostinato.trackers.base import TrackerCallback, rewrite_logs
from ostinato.trackers.sink import Held, RunInfo, Sink
from tests.support.quiet_trainer import build_quiet_trainer


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1)
        self.config = type("Config", (), {"to_dict": lambda _: {"width": 2, "nested": {"api_key": "hidden"}}})()

    def forward(self, x, labels=None):
        loss = nn.functional.mse_loss(self.inner(x).squeeze(-1), labels)
        return {"loss": loss, "logits": self.inner(x)}


ROWS = [{"x": torch.tensor([i / 8, 1.0]), "labels": torch.tensor(i / 4)} for i in range(16)]


class Memory(Sink):
    """Keeps what it is told, and raises where it is asked to."""

    def __init__(self, fails_at: tuple[str, ...] = (), runs: dict | None = None) -> None:
        self.fails_at, self.events = fails_at, []
        self.runs: dict[str, list[tuple[int, dict]]] = {} if runs is None else runs

    def _happens(self, event: str) -> None:
        self.events.append(event)
        if event in self.fails_at:
            raise OSError(f"no answer at {event}\nand a long explanation")

    def start(self, run: RunInfo) -> str:
        self._happens("start")
        self.info = run
        self.id = run.run_id or f"run {len(self.runs)}"
        self.runs.setdefault(self.id, [])
        return self.id

    def log(self, numbers, step: int) -> None:
        logs = sum(event.startswith("log") for event in self.events)
        self._happens(f"log {logs + 1}")
        self.runs[self.id].append((step, dict(numbers)))

    def finish(self) -> None:
        self._happens("finish")

    def held(self, run: RunInfo) -> Held:
        held = Held()
        for step, numbers in self.runs[self.id]:
            for name, value in numbers.items():
                held.add(step, name, value)
        return held


def trainer(directory: Path, *callbacks, **arguments) -> ostinato.Trainer:
    torch.manual_seed(0)
    given = {
        **dict(max_steps=6, per_device_train_batch_size=4, logging_steps=1, save_steps=2),
        **dict(eval_strategy="steps", eval_steps=3, train_dataset=ROWS, eval_dataset=ROWS[:4]),
        **arguments,
    }
    return build_quiet_trainer(directory, Model(), callbacks=list(callbacks), **given)


def logged(made: ostinato.Trainer) -> list[tuple[int, dict]]:
    history = [dict(entry) for entry in made.state.log_history]
    return [(entry.pop("step"), rewrite_logs(entry)) for entry in history]


class StopsAt(ostinato.TrainerCallback):
    """Raises in the middle of a run, after step `step` was logged."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def cut_short(directory: Path, step: int, *callbacks, **arguments) -> None:
    with pytest.raises(KeyboardInterrupt):
        trainer(directory, *callbacks, StopsAt(step), **arguments).train()


def test_everything_logged_arrives_under_its_folder(tmp_path) -> None:
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink))
    made.train()
    assert sink.runs["run 0"] == logged(made)
    assert sink.events.count("start") == sink.events.count("finish") == 1
    names = {name for _, numbers in sink.runs["run 0"] for name in numbers}
    assert {"train/loss", "train/learning_rate", "train/train_loss", "eval/loss", "train/epoch"} <= names


def test_the_description_of_the_run_for_a_tracker(tmp_path) -> None:
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink), run_name="first", hub_token="very secret", learning_rate=0.25)
    made.train()
    assert sink.info.name == "first"
    assert sink.info.hyper_parameters["learning_rate"] == 0.25
    assert sink.info.model_config["width"] == 2
    assert "very secret" not in str(sink.info) and "hidden" not in str(sink.info.everything)


def test_other_processes_log_nothing(tmp_path) -> None:
    sink = Memory()
    callback = TrackerCallback(sink)
    state = ostinato.TrainerState(is_world_process_zero=False)
    args, control = ostinato.TrainingArguments(str(tmp_path), use_cpu=True), ostinato.TrainerControl()
    callback.on_train_begin(args, state, control, model=None)
    callback.on_log(args, state, control, logs={"loss": 1.0})
    callback.on_train_end(args, state, control)
    assert sink.events == []


def test_values_that_are_not_numbers_are_left_out_with_a_notice(tmp_path, capsys) -> None:
    forget_notices()
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink), max_steps=1, eval_strategy="no")
    made.train()
    made.log({"words": "many", "tensor": torch.tensor(2.0), "whole": 3})
    assert sink.runs["run 0"][-1][1] == {"train/tensor": 2.0, "train/whole": 3, "train/epoch": made.state.epoch}
    assert "words is a str" in capsys.readouterr().err


# ---- resuming ------------------------------------------------------------------------------------


def test_a_resumed_run_continues_the_tracker_run_without_duplicates(tmp_path) -> None:
    runs: dict = {}
    cut_short(tmp_path, 5, TrackerCallback(Memory(runs=runs)))
    assert [step for step, _ in runs["run 0"]] == [1, 2, 3, 3, 4, 5]
    made = trainer(tmp_path, TrackerCallback(Memory(runs=runs)))
    made.train(resume_from_checkpoint=True)
    assert list(runs) == ["run 0"]
    same = [(step, sorted(numbers)) for step, numbers in runs["run 0"]]
    assert same == [(step, sorted(numbers)) for step, numbers in logged(made)]
    losses = [numbers["train/loss"] for _, numbers in runs["run 0"] if "train/loss" in numbers]
    assert losses == [numbers["train/loss"] for _, numbers in logged(made) if "train/loss" in numbers]


def test_what_the_tracker_lost_is_logged_again(tmp_path) -> None:
    runs: dict = {}
    cut_short(tmp_path, 5, TrackerCallback(Memory(runs=runs)))
    runs["run 0"] = runs["run 0"][:1]  # it kept the rest in memory
    made = trainer(tmp_path, TrackerCallback(Memory(runs=runs)))
    made.train(resume_from_checkpoint=True)
    assert [step for step, _ in runs["run 0"]] == [step for step, _ in logged(made)]


def test_a_tracker_that_was_not_there_before_gets_the_whole_history(tmp_path) -> None:
    cut_short(tmp_path, 5)
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink))
    made.train(resume_from_checkpoint=True)
    assert sink.runs["run 0"] == logged(made)


def test_other_numbers_of_a_step_are_added_with_a_notice(tmp_path, capsys) -> None:
    runs: dict = {}
    cut_short(tmp_path, 5, TrackerCallback(Memory(runs=runs)))
    runs["run 0"][-1][1]["train/loss"] = 123.0
    forget_notices()
    trainer(tmp_path, TrackerCallback(Memory(runs=runs))).train(resume_from_checkpoint=True)
    assert len([1 for step, numbers in runs["run 0"] if step == 5 and "train/loss" in numbers]) == 2
    assert capsys.readouterr().err.count("with another value from an earlier attempt") == 1


def test_training_again_is_another_run_and_what_follows_belongs_to_it(tmp_path) -> None:
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink), eval_strategy="no", max_steps=2)
    made.evaluate()
    made.train()
    assert list(sink.runs) == ["run 0"]
    made.train()
    made.evaluate()
    assert list(sink.runs) == ["run 0", "run 1"]
    assert [step for step, _ in sink.runs["run 0"]] == [0, 1, 2, 2]
    assert [step for step, _ in sink.runs["run 1"]] == [1, 2, 2, 2]


# ---- failing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", [("start",), ("log 3",), ("finish",), tuple(f"log {n}" for n in range(1, 99))])
def test_a_tracker_that_fails_warns_once_and_stops_nothing(tmp_path, capsys, fails_at) -> None:
    sink = Memory(fails_at)
    made = trainer(tmp_path / "a", TrackerCallback(sink))
    made.train()
    said = capsys.readouterr().err
    assert said.count("the tracker Memory") == 1
    assert "OSError: no answer" in said and "long explanation" not in said
    alone = trainer(tmp_path / "b")
    alone.train()
    assert all(a.equal(b) for a, b in zip(made.model.parameters(), alone.model.parameters(), strict=True))


def test_a_failed_log_does_not_stop_later_ones(tmp_path) -> None:
    sink = Memory(("log 3",))
    made = trainer(tmp_path, TrackerCallback(sink))
    made.train()
    everything = logged(made)
    assert sink.runs["run 0"] == everything[:2] + everything[3:]


def test_a_tracker_that_never_answers_is_given_up(tmp_path) -> None:
    sink = Memory(tuple(f"log {n}" for n in range(1, 99)))
    trainer(tmp_path, TrackerCallback(sink)).train()
    assert sum(event.startswith("log") for event in sink.events) == 3


# ---- waiting for one another ----------------------------------------------------------------------


class Patient(Memory):
    """Takes many logs at once, and remembers which came together."""

    patience = 3600.0

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.together: list[list[int]] = []
        self.times: list[float] = []

    def log_all(self, logs) -> None:
        self.together.append([one.step for one in logs])
        self.times += [one.time for one in logs]
        super().log_all(logs)


def test_what_is_logged_in_quick_succession_is_handed_over_together(tmp_path) -> None:
    sink = Patient()
    made = trainer(tmp_path, TrackerCallback(sink), eval_strategy="no", save_strategy="no")
    made.train()
    assert sink.runs["run 0"] == logged(made)
    assert sink.together == [[1], [2, 3, 4, 5, 6], [6]]  # the first at once; the last two: nothing follows them
    assert sink.times == sorted(sink.times) and len(set(sink.times)) == 7


def test_nothing_waits_while_the_run_evaluates_or_saves(tmp_path) -> None:
    sink = Patient()
    seen: dict[str, list[int]] = {}

    class Looks(ostinato.TrainerCallback):
        def on_prediction_step(self, args, state, control, **kwargs) -> None:
            seen.setdefault(f"evaluating at {state.global_step}", [step for step, _ in sink.runs["run 0"]])

        def on_save(self, args, state, control, **kwargs) -> None:
            seen.setdefault(f"saved at {state.global_step}", [step for step, _ in sink.runs["run 0"]])

    trainer(tmp_path, TrackerCallback(sink), Looks(), save_steps=5).train()
    assert seen == {
        "evaluating at 3": [1, 2, 3],
        "saved at 5": [1, 2, 3, 3, 4, 5],
        "evaluating at 6": [1, 2, 3, 3, 4, 5, 6],
        "saved at 6": [1, 2, 3, 3, 4, 5, 6, 6],
    }


def test_pending_logs_are_sent_when_training_fails(tmp_path) -> None:
    sink = Patient()
    made = trainer(tmp_path, TrackerCallback(sink), StopsAt(5), eval_strategy="no", save_strategy="no")
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert [step for step, _ in sink.runs["run 0"]] == [1, 2, 3, 4, 5]
    made.evaluate()  # what comes after it does not wait either
    assert "eval/loss" in sink.runs["run 0"][-1][1]


def test_what_waited_for_a_tracker_that_fails_is_lost_and_the_next_is_not(tmp_path, capsys) -> None:
    sink = Patient(("log 2",))
    made = trainer(tmp_path, TrackerCallback(sink), eval_strategy="no", save_steps=3)
    made.train()
    assert [step for step, _ in sink.runs["run 0"]] == [1, 4, 5, 6, 6]
    assert capsys.readouterr().err.count("the tracker Patient") == 1


# ---- files ---------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[tuple[int, dict[str, float]]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        (int(row["step"]), {name: float(cell) for name, cell in row.items() if cell and name != "step"})
        for row in rows
    ]


def read_jsonl(path: Path) -> list[tuple[int, dict[str, float]]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert "hyper_parameters" in lines[0]
    return [(line.pop("step"), line) for line in lines[1:]]


@pytest.mark.parametrize(("name", "read"), [("csv", read_csv), ("jsonl", read_jsonl)])
def test_files_hold_what_was_logged_bit_for_bit_also_after_an_end_in_the_middle(tmp_path, name, read) -> None:
    cut_short(tmp_path, 5, report_to=name)
    path = tmp_path / f"metrics.{name}"
    with path.open("a") as file:
        file.write('{"step": 5, "trai')  # a line that was being written
    made = trainer(tmp_path, report_to=name)
    made.train(resume_from_checkpoint=True)
    assert read(path) == logged(made)
    made.log({"test_acc": 0.1})
    assert read(path) == logged(made)


def test_a_file_without_its_run_is_made_again(tmp_path) -> None:
    cut_short(tmp_path, 5, report_to="csv")
    (tmp_path / "metrics.csv").unlink()
    made = trainer(tmp_path, report_to="csv")
    made.train(resume_from_checkpoint=True)
    assert read_csv(tmp_path / "metrics.csv") == logged(made)
    assert json.loads((tmp_path / "hparams.json").read_text())["model_config"]["width"] == 2


def test_a_new_run_begins_a_new_file(tmp_path) -> None:
    trainer(tmp_path, report_to=["csv", "jsonl"]).train()
    made = trainer(tmp_path, report_to=["csv", "jsonl"], max_steps=1, eval_strategy="no")
    made.train()
    assert read_csv(tmp_path / "metrics.csv") == read_jsonl(tmp_path / "metrics.jsonl") == logged(made)


def test_what_is_not_finite_stays_readable(tmp_path) -> None:
    made = trainer(tmp_path, report_to=["csv", "jsonl"], max_steps=1, eval_strategy="no")
    made.train()
    made.log({"a": float("nan"), "b": float("-inf")})
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["train/a"], last["train/b"]) == ("NaN", "-Infinity")
    numbers = read_csv(tmp_path / "metrics.csv")[-1][1]
    assert numbers["train/a"] != numbers["train/a"] and numbers["train/b"] == float("-inf")


# ---- report_to -----------------------------------------------------------------------------------


def test_unknown_names_are_found_before_anything_runs(tmp_path) -> None:
    with pytest.raises(ostinato.ConfigError, match="did you mean 'tensorboard'"):
        ostinato.TrainingArguments(str(tmp_path), report_to="tensorbord", use_cpu=True)


def test_a_missing_package_is_named_before_anything_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ostinato.arguments.tracker_names.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install wandb"):
        trainer(tmp_path, report_to="wandb")
    with pytest.raises(RuntimeError, match="pip install comet-ml"):
        find_callback_class("comet_ml")()
    assert ostinato.TrainingArguments(str(tmp_path), report_to="all", use_cpu=True).report_to == ["csv", "jsonl"]


def test_all_names_the_trackers(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("ostinato.arguments.tracker_names.find_spec", lambda name: None)
    forget_notices()
    made = trainer(tmp_path, report_to="all")
    assert 'report_to="all": logs are sent to csv, jsonl' in capsys.readouterr().err
    kinds = [type(callback).__name__ for callback in made.callback_handler.callbacks]
    assert kinds == ["DefaultFlowCallback", "CsvCallback", "JsonlCallback", "JournalCallback"]


def test_a_tracker_handed_over_takes_the_place_of_the_one_asked_for(tmp_path) -> None:
    own = ostinato.CsvCallback("mine.csv")
    made = trainer(tmp_path, own, report_to="csv", max_steps=1, eval_strategy="no")
    made.train()
    assert read_csv(tmp_path / "mine.csv") == logged(made)
    assert not (tmp_path / "metrics.csv").exists()


def test_trackers_of_other_packages(tmp_path, monkeypatch) -> None:
    sink = Memory()

    class Entry:
        name = "mine"

        def load(self):
            return lambda: TrackerCallback(sink)

    monkeypatch.setattr(
        "ostinato.arguments.tracker_names.entry_points",
        lambda group: [Entry()] if group == "ostinato.trackers" else [],
    )
    made = trainer(tmp_path, report_to="mine")
    made.train()
    assert sink.runs["run 0"] == logged(made)
    assert "mine" in ostinato.trackers.get_available_reporting_integrations()
    assert "mine" in ostinato.trackers.INTEGRATION_TO_CALLBACK


def test_a_held_point_is_taken_once_for_each_time_it_was_logged() -> None:
    held = Held()
    for value in (0.5, 0.5, float("nan")):
        held.add(3, "train/epoch", value)
    assert [held.take(3, "train/epoch", 0.5) for _ in range(3)] == [(True, False), (True, False), (False, True)]
    assert held.take(3, "train/epoch", float("nan")) == (True, False)
    assert held.take(3, "train/epoch", 0.5) == (False, False)
    held.add(3, "eval/runtime", 1.0)
    assert held.take(3, "eval/runtime", 2.0) == (True, False)  # a clock's number: the first one stays


def test_a_rehearsal_sends_nothing_to_a_tracker(tmp_path) -> None:
    sink = Memory()
    made = trainer(tmp_path, TrackerCallback(sink), rehearse=True)
    made.train()
    made.verify_resume(2)
    assert list(sink.runs) == ["run 0"]
    assert sink.runs["run 0"] == logged(made)


def test_the_module_of_transformers_has_the_same_names() -> None:
    from ostinato.integrations import INTEGRATION_TO_CALLBACK, TensorBoardCallback, is_tensorboard_available

    assert INTEGRATION_TO_CALLBACK["tensorboard"] is TensorBoardCallback is ostinato.TensorBoardCallback
    assert is_tensorboard_available()
    with pytest.raises(ImportError, match="NoSuchCallback"):
        from ostinato.integrations import NoSuchCallback  # noqa: F401
