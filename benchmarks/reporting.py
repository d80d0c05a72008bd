"""What looking at a run costs: everything reported against nothing, on steps of five milliseconds; and its memory.

    python benchmarks/reporting.py                  # what it adds to a step, with a log every 10 steps and every step
    python benchmarks/reporting.py --each           # each part by itself as well
    python benchmarks/reporting.py --trackers wandb mlflow trackio    # these on top, one at a time
    python benchmarks/reporting.py --memory         # resident memory over 50,000 steps

*everything* is: the live bar on a terminal (a pseudo-terminal, which is read), journal and page, tensorboard, csv and
jsonl, two losses and a number of the user's own, a metric of the training batches, tokens counted without padding.
*nothing* has no log at all. Both train the same model, each in a process of its own. They take turns: one takes 50
steps while the other waits, so that both see the same machine, however busy it is. The median of the differences of
neighbouring spans counts, and of several such pairs of processes their mean.

A step takes 5 ms because its model multiplies matrices for what is left of them; that time is not in the account, so
that the rest can be seen. The first steps of a run, and what begins and ends it (the page is written there), are
told apart. `besides the model` tells how fast the machine is: 0.8 ms where nobody else is on it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ostinato
from ostinato import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

LENGTH, VOCABULARY, WIDTH, ROWS = 32, 500, 16, 4
WARM_UP = 20  # steps of every leg that are not counted
SPAN = 50  # steps that are looked at together: with a log every 10 steps there are five in each
TARGET = 5e-3  # seconds that a step should take
OURS = ("bar", "journal", "losses", "metrics", "tokens")
EVERYTHING = (*OURS, "tensorboard", "csv", "jsonl")


class Classifier(nn.Module):
    """Two layers over the tokens of a row, and a class for each row."""

    main_input_name = "input_ids"

    def __init__(self, wait: float) -> None:
        super().__init__()
        self.wait = wait
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, 5)
        self.steps = 0
        self.turns: Turns | None = None
        self.begun = self.ended = 0.0  # CPU time, at the beginning of the first step and of the last
        self.worked = 0.0  # CPU time that is taken out of the account
        self.matrix = torch.randn(128, 128)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, Any]:
        if self.steps >= WARM_UP and (self.steps - WARM_UP) % SPAN == 0 and self.turns is not None:
            self.turns.change(self.worked)
        self.ended = time.process_time() - self.worked
        self.begun = self.begun or self.ended
        self.steps += 1
        begun, end = time.thread_time(), time.perf_counter() + self.wait
        with torch.no_grad():
            while time.perf_counter() < end:
                torch.mm(self.matrix, self.matrix)
        self.worked += time.thread_time() - begun
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((hidden * mask).sum(1) / mask.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class TwoLosses(Trainer):
    """A loss and what keeps logits small: the same arithmetic, whether it is told of or not."""

    tells = True

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**inputs)
        size = outputs["logits"].square().mean()
        losses = {"classes": outputs["loss"], "logit_size": 1e-4 * size}
        if self.tells:
            ostinato.track("logits", size.detach(), weight=len(inputs["labels"]))
        told = losses if self.tells else losses["classes"] + losses["logit_size"]
        return (told, outputs) if return_outputs else told


class Rows(torch.utils.data.Dataset[Any]):
    """Ragged rows, padded."""

    def __init__(self, count: int) -> None:
        chance = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, VOCABULARY, (256, LENGTH), generator=chance)
        self.mask = (torch.arange(LENGTH) < torch.randint(8, LENGTH + 1, (256, 1), generator=chance)).long()
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        at = index % 256
        return {"input_ids": self.ids[at], "attention_mask": self.mask[at], "labels": at % 5}


@dataclass
class Turns:
    """A process' share of the time: it waits for a byte, takes some steps, and passes the byte on."""

    receive: int
    send: int
    cpu: list[float] = field(default_factory=list)  # a step, in each span; what threads do meanwhile is counted
    wall: list[float] = field(default_factory=list)
    _since: tuple[float, float] | None = None

    def change(self, worked: float) -> None:
        arrived = time.perf_counter()
        if self._since is not None:
            with contextlib.suppress(BrokenPipeError):  # the other one is through
                os.write(self.send, b"x")
        os.read(self.receive, 1)
        cpu = time.process_time() - worked
        if self._since is not None:
            self.cpu.append((cpu - self._since[0]) / SPAN)
            self.wall.append((arrived - self._since[1]) / SPAN)
        self._since = (cpu, time.perf_counter())


@dataclass(frozen=True)
class Leg:
    """What one run took: by step, in spans of steps; and around its steps. Seconds."""

    cpu: list[float]
    wall: list[float]
    around: float  # CPU time before the first and after the last step


def train(
    directory: str, steps: int, every: int, parts: list[str], *,
    wait: float = 0.0, callbacks: Any = None, turns: Turns | None = None,
) -> Leg:  # fmt: skip
    """One run; with no parts it reports nothing."""
    torch.manual_seed(0)
    model = Classifier(wait)
    model.turns = turns
    trackers = [name for name in parts if name not in OURS]
    args = TrainingArguments(
        directory, per_device_train_batch_size=ROWS, max_steps=steps, learning_rate=1e-3, save_strategy="no",
        use_cpu=True, train_sampling_strategy="sequential", log_level="error",
        logging_strategy="steps" if parts else "no", logging_steps=every,
        report_to=trackers or "none", disable_tqdm="bar" not in parts,
        journal="journal" in parts, write_report="journal" in parts,
        include_num_input_tokens_seen="non_padding" if "tokens" in parts else "no",
    )  # fmt: skip
    begun = time.process_time()
    trainer = TwoLosses(
        model, args, train_dataset=Rows(ROWS * 1000), callbacks=callbacks,
        train_metrics=["accuracy"] if "metrics" in parts else None,
    )  # fmt: skip
    trainer.tells = "losses" in parts
    if "bar" not in parts:
        trainer.remove_callback(PrinterCallback)
    trainer.train()
    ended = time.process_time()
    return Leg(
        cpu=[] if turns is None else turns.cpu,
        wall=[] if turns is None else turns.wall,
        around=ended - begun - model.worked - (model.ended - model.begun),
    )


def leg(options: argparse.Namespace) -> dict[str, Any]:
    """In a process that takes turns with another."""
    with tempfile.TemporaryDirectory() as directory:
        found = train(
            directory, options.steps, options.every[0], options.parts, wait=options.work, turns=Turns(*options.turns)
        )  # fmt: skip
    os.close(options.turns[1])
    return asdict(found)


def compare(pairs: int, steps: int, every: int, parts: list[str], work: float) -> dict[str, Any]:
    """Runs that report beside runs that do not. How fast a process is depends on where its memory lies, so that one
    pair says little.
    """
    told, told_not = zip(*(pair(steps, every, parts, work) for _ in range(pairs)), strict=True)

    def added(clock: str) -> list[float]:
        """By pair."""
        return [
            statistics.median(a - b for a, b in zip(loud[clock], quiet[clock], strict=False))
            for loud, quiet in zip(told, told_not, strict=True)
        ]

    def usual(clock: str) -> float:
        return statistics.mean(statistics.median(quiet[clock]) for quiet in told_not)

    return {
        "cpu": statistics.mean(added("cpu")), "wall": statistics.mean(added("wall")), "each": sorted(added("wall")),
        "around": statistics.mean(a["around"] - b["around"] for a, b in zip(told, told_not, strict=True)),
        "step": usual("wall"), "quiet": usual("cpu"),
    }  # fmt: skip


def work_left() -> float:
    """How long the model has to multiply matrices for a step to take as long as it should."""
    both = pair(WARM_UP + 6 * SPAN, 10, [], TARGET / 2)
    return max(TARGET - statistics.mean(statistics.median(one["cpu"]) for one in both), TARGET / 10)


def pair(steps: int, every: int, parts: list[str], work: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """One run that reports, and one that does not, in turns."""
    (to_loud, from_quiet), (to_quiet, from_loud) = os.pipe(), os.pipe()
    words = ["--steps", str(steps), "--every", str(every), "--work", str(work)]
    loud = OnATerminal([*words, "--parts", *parts], (to_loud, from_loud))
    quiet = OnATerminal([*words, "--parts"], (to_quiet, from_quiet))
    os.write(from_quiet, b"x")  # the first turn
    for end in (to_loud, from_quiet, to_quiet, from_loud):
        os.close(end)
    return loud.answer(), quiet.answer()


@dataclass
class Memory(TrainerCallback):
    """Looks at the resident memory from time to time.

    The history of logs grows by design, as in transformers. It is weighed and emptied at every look: what grows
    then is something else.
    """

    every: int
    seen: list[tuple[int, float, float]] = field(default_factory=list)  # step, MB resident, MB of history since then

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            history = _size(state.log_history) / 1e6
            state.log_history.clear()
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.seen.append((state.global_step, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, history))


def _size(history: list[dict[str, Any]]) -> int:
    """The bytes of the history: its dicts and the numbers in them (names are shared)."""
    return sys.getsizeof(history) + sum(sys.getsizeof(log) + sum(map(sys.getsizeof, log.values())) for log in history)


def memory(steps: int, every: int) -> list[tuple[int, float, float]]:
    """Resident memory over one long run with everything on; tiny steps."""
    gauge = Memory(max(steps // 10, 1))
    with tempfile.TemporaryDirectory() as directory:
        train(directory, steps, every, list(EVERYTHING), callbacks=[gauge])
    return gauge.seen


class OnATerminal:
    """This program once more, with a pseudo-terminal for standard output."""

    def __init__(self, words: list[str], turns: tuple[int, int] | None = None) -> None:
        self._leader, follower = pty.openpty()
        self._ending, answer = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
        environment |= {"PYTHONPATH": str(Path(ostinato.__file__).parents[1]), "WANDB_MODE": "offline"}
        command = [sys.executable, str(Path(__file__).resolve()), *words, "--answer", str(answer)]
        command += ["--turns", *map(str, turns)] if turns else []
        self._home = tempfile.TemporaryDirectory()  # trackers write to where they are started, and to the user's home
        environment |= {"HOME": self._home.name, "WANDB_SILENT": "true"}
        self._child = subprocess.Popen(
            command, stdout=follower, env=environment, pass_fds=[answer, *(turns or ())], cwd=self._home.name
        )  # fmt: skip
        os.close(follower)
        os.close(answer)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        try:
            while os.read(self._leader, 65536):
                pass
        except OSError:  # the other end is closed
            pass

    def answer(self) -> Any:
        """What it found."""
        with os.fdopen(self._ending) as found:
            text = found.read()
        if self._child.wait() != 0:
            raise SystemExit(f"the measurement failed with exit code {self._child.returncode}")
        self._reader.join()
        os.close(self._leader)
        self._home.cleanup()
        return json.loads(text)


def answer(options: argparse.Namespace) -> None:
    """In the process that measures."""
    torch.set_num_threads(1)
    logging.getLogger("wandb").setLevel(logging.ERROR)
    found: Any = memory(options.memory_steps, options.every[0]) if options.memory else leg(options)
    with os.fdopen(options.answer, "w") as file:
        json.dump(found, file)


def show_memory(options: argparse.Namespace) -> None:
    words = ["--memory", "--memory-steps", str(options.memory_steps), "--every", str(options.every[0])]
    seen = OnATerminal(words).answer()
    for step, resident, _ in seen:
        print(f"step {step:7,}   {resident:8.1f} MB resident")
    (first, before, _), (last, after, history) = seen[1], seen[-1]
    per = (last - first) / 10_000
    print(
        f"growth per 10,000 steps after step {first:,}: {(after - before) / per:.2f} MB; the history of logs, "
        f"which is kept as in transformers and was emptied here, takes {history * 10_000 / (last / len(seen)):.2f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--every", type=int, nargs="+", default=[10, 1], help="logging_steps")
    parser.add_argument("--trackers", nargs="+", default=[], help="trackers besides tensorboard, csv and jsonl")
    parser.add_argument("--each", action="store_true", help="each part by itself as well")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-steps", type=int, default=50_000)
    parser.add_argument("--parts", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        answer(options)
    elif options.memory:
        show_memory(options)
    else:
        rows = [("everything", list(EVERYTHING))]
        rows += [(f"with {name}", [*EVERYTHING, name]) for name in options.trackers]
        rows += [(f"{name} alone", [name]) for name in EVERYTHING if options.each]
        work = work_left()
        for name, parts in rows:
            for every in options.every:
                found = compare(options.pairs, options.steps, every, parts, work)
                print(f"{name:18} a log every {every:2} steps: {_told(found)}", flush=True)


def _told(found: dict[str, Any]) -> str:
    return (
        f"{found['wall'] / found['step']:+5.1%} ({found['wall'] * 1e6:.0f} us; by pairs "
        f"{found['each'][0] * 1e6:.0f} to {found['each'][-1] * 1e6:.0f}) on steps of {found['step'] * 1e3:.1f} ms, "
        f"{found['quiet'] * 1e6:.0f} us of them besides the model; {found['cpu'] * 1e6:.0f} us of CPU time a step, "
        f"{found['around'] * 1e3:.0f} ms CPU around the steps"
    )


if __name__ == "__main__":
    main()
