"""Scripts as tutorials have them, each a page, unmodified: on Ostinato they do what they do on transformers.

One switch: a stage (`stage.py`) that runs them was started by `python`, another by `ostinato exec`. Every number that
a script's trainers logged, their weights at the end and what the script printed are equal bit for bit, the keys of the
logs come in the same order, and with `checkpoint_layout=transformers` the files of every checkpoint have the same
names; our own come in addition. `OTHERWISE` has the scripts that do something else there (docs/differences.md), and
where the right values come from.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import is_time
from tests.support.references import recall

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts run in copies of a process")

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
NAMES = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))
NEEDS = {"lora": "peft"}
STARTS = {
    "transformers": [],
    "ostinato": ["-m", "ostinato", "exec", "--set", "isolate_rng=false", "--set", "checkpoint_layout=transformers"],
}

# What our checkpoints hold beside the files of transformers: checksums, the place in the data, and the same again
# without pickles.
OUR_FILES = {
    "MANIFEST.json",
    "events.jsonl",
    "loop.json",
    "loop.safetensors",
    "optimizer.json",
    "report.html",
    "optimizer.safetensors",
    "rng-0.json",
    "rng-0.safetensors",
    "run.json",
    "scheduler.json",
    "training_args.json",
}


class Stage:
    """A process that runs scripts on one library."""

    def __init__(self, library: str, directory: Path) -> None:
        self.library = library
        self.directory = directory / library
        self.answers: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self.said = directory / f"{library}.txt"

    @functools.cached_property
    def process(self) -> subprocess.Popen[str]:
        """Started when it is first needed: what transformers does may be recorded."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TQDM_DISABLE": "1",
        }
        with self.said.open("w") as said:
            return subprocess.Popen(
                [sys.executable, *STARTS[self.library], str(HERE / "stage.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=environment,
            )

    def ask(self, name: str, arguments: tuple[str, ...] = ()) -> None:
        """Begin with a script, unless it was run before."""
        if (name, arguments) in self.answers:
            return
        self.out = self.directory / f"{len(self.answers)}-{name}"
        asked = {"script": str(HERE / "scripts" / f"{name}.py"), "directory": str(self.out)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({**asked, "arguments": [str(self.out), *arguments]}) + "\n")
        self.process.stdin.flush()

    def answer(self, name: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
        """What happened to the script that was asked for."""
        if (name, arguments) not in self.answers:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.said.read_text()
            self.answers[name, arguments] = {**json.loads(line), "files": files_in(self.out)}
        return self.answers[name, arguments]

    def close(self) -> None:
        if "process" not in vars(self):
            return
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def files_in(directory: Path) -> dict[str, set[str]]:
    """The names of the files in every directory: checkpoints, and what the script itself had written.

    A second run in one directory overwrites the first there; here it has a directory of its own beside, which is left
    out of the names.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for path in directory.glob("**/*"):
        if path.is_file():
            found[re.sub(r"\brun-\d+-\d+-\w+/", "", str(path.parent.relative_to(directory)))].add(path.name)
    return dict(sorted(found.items()))


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stage]]:
    directory = tmp_path_factory.mktemp("tutorials")
    opened = {library: Stage(library, directory) for library in STARTS}
    yield opened
    for stage in opened.values():
        stage.close()


def recall_answer(stages: dict[str, Stage], name: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """What happens to a script on transformers; of an error its last line."""

    def run() -> dict[str, Any]:
        stages["transformers"].ask(name, arguments)
        answer = stages["transformers"].answer(name, arguments)
        return {"failed": answer["failed"].splitlines()[-1]} if "failed" in answer else answer

    script = HERE / "scripts" / f"{name}.py"
    return recall(run, name=" ".join([name, *arguments]), code=[script.read_text(), (HERE / "stage.py").read_text()])


@dataclass(frozen=True)
class Otherwise:
    """A script that does something else on transformers, and where the right values come from."""

    why: str
    script: str = ""  # which does on transformers what this one does on ours; by default the same
    arguments: tuple[str, ...] = ()  # for it
    near: frozenset[str] = frozenset()  # logged values that are equal but for rounding
    right: Callable[[dict[str, Any]], dict[str, float]] | None = None  # logged values that ours must have instead
    prints: str | None = None  # what the script prints on ours


def mean_of_all_steps(trainer: dict[str, Any]) -> dict[str, float]:
    losses = [entry["loss"] for entry in trainer["history"] if "loss" in entry]
    return {"train_loss": sum(losses) / len(losses)}


OTHERWISE = {
    "weighted_loss_short": Otherwise(
        why="a `compute_loss` without `num_items_in_batch`, as in transformers 4, is a TypeError there",
        script="weighted_loss",
    ),
    "gpt2_lm": Otherwise(
        why="counts labels that are never predicted, unless the model says of what kind its loss is",
        arguments=("ForCausalLM",),
    ),
    "token_classification": Otherwise(
        why="eval_loss is a mean of the batches' means; one batch of all rows has the mean over all targets",
        arguments=("16",),
        near=frozenset({"eval_loss"}),
    ),
    "accumulate_mean": Otherwise(
        why="the gradient and the logged loss of a mean are multiplied by the number of micro-batches",
        arguments=("1",),
        near=frozenset({"loss", "grad_norm", "train_loss", "weights"}),
    ),
    "image_classification": Otherwise(
        why="the best model is loaded in part only, where a model is saved under other names than it has in memory",
        near=frozenset({"weights"}),
        prints="the best weights: True",
    ),
    "resume": Otherwise(
        why="train_loss of a resumed run is the mean over the steps since then; ours is that of the whole run",
        right=mean_of_all_steps,
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_script(name: str, stages: dict[str, Stage]) -> None:
    if importlib.util.find_spec(NEEDS.get(name, "transformers")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    other = OTHERWISE.get(name, Otherwise(""))
    asked = (other.script or name, other.arguments)
    stages["ostinato"].ask(name)
    theirs, ours = recall_answer(stages, *asked), stages["ostinato"].answer(name)

    assert "failed" not in theirs, theirs["failed"]
    assert "failed" not in ours, ours["failed"]
    assert ours["trainers"]
    assert_ran_on("transformers", theirs)
    assert_ran_on("ostinato", ours)
    for their, our in zip(theirs["trainers"], ours["trainers"], strict=True):
        assert_same_logs(their["history"], our["history"], other)
        if other.right is not None:
            for key, value in other.right(our).items():
                assert [one[key] for one in our["history"] if key in one] == [pytest.approx(value, rel=1e-6)]
        assert our["steps"] == their["steps"]
        assert our["state"] == their["state"]
        assert our["best"] == their["best"]
        assert our["weights"] == their["weights"] or "weights" in other.near
    assert ours["printed"] == (theirs["printed"] if other.prints is None else [other.prints])
    files = {directory: names - OUR_FILES for directory, names in ours["files"].items()}
    assert {directory: names for directory, names in files.items() if names} == theirs["files"]


@pytest.mark.parametrize("name", OTHERWISE)
def test_transformers_does_otherwise(name: str, stages: dict[str, Stage]) -> None:
    """What the table says of transformers is so: the very same script has other numbers there, or fails."""
    stages["ostinato"].ask(name)
    theirs, ours = recall_answer(stages, name), stages["ostinato"].answer(name)
    if "failed" in theirs:
        assert "TypeError" in theirs["failed"]
    else:
        assert theirs["trainers"][-1]["weights"] != ours["trainers"][-1]["weights"] or (
            theirs["trainers"][-1]["history"] != ours["trainers"][-1]["history"]
        )
        assert theirs["printed"] != ours["printed"] or OTHERWISE[name].prints is None


def assert_ran_on(library: str, told: dict[str, Any]) -> None:
    """All classes of the trainers and of their arguments are this library's or the script's, and so is the loop."""
    is_ours = library == "ostinato"
    of_the_other = "transformers." if is_ours else "ostinato."
    arguments = f"{library}.{'arguments.' if is_ours else ''}training_args.TrainingArguments"
    for trainer in told["trainers"]:
        assert f"{library}.trainer.Trainer" in trainer["classes"]
        assert arguments in trainer["arguments"]
        assert not [one for one in trainer["classes"] + trainer["arguments"] if one.startswith(of_the_other)]
        assert trainer["steps"] > 0
        assert trainer["loops"] == ["ostinato.engine.loop" if is_ours else "transformers.trainer"]


def assert_same_logs(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], other: Otherwise) -> None:
    assert [list(entry) for entry in ours] == [list(entry) for entry in theirs]
    for their, our in zip(theirs, ours, strict=True):
        for key in (key for key in our if not is_time(key)):
            if key in other.near:
                assert our[key] == pytest.approx(their[key], rel=1e-4), (key, our["step"])
            elif other.right is None or key not in other.right({"history": ours}):
                same = our[key] == their[key] or (our[key] != our[key] and their[key] != their[key])
                assert same, (key, our["step"], their[key], our[key])
