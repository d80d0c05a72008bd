"""What looking at a run costs: everything reported against nothing, on steps of five milliseconds; and its memory.

    python benchmarks/reporting.py                  # what it adds to a step, with a log every 10 steps and every step
    python benchmarks/reporting.py --each           # each part by itself as well
    python benchmarks/reporting.py --trackers wandb mlflow trackio    # these on top, one at a time
    python benchmarks/reporting.py --inside         # with clocks inside a run: what takes how long, in its place
    python benchmarks/reporting.py --memory         # resident memory over 50,000 steps

*everything* is: the live bar on a terminal (a pseudo-terminal, which is read), journal and page, tensorboard, csv and
jsonl, two losses and a number of the user's own, a metric of the training batches, tokens counted without padding.
*reporting all of it* is the same against a run that computes all of these numbers in every step, too, but reports none
of them. *what is shown and kept* leaves out what has to be computed before it can be reported: the latter four.

A run reports everything for 100 steps, then nothing for 100 steps, and so on: two processes differ by more than what
is to be found. The median of the differences of neighbouring spans counts, and of several processes
their mean. What goes by the clock (the bar, once a second for the trackers) comes a little too often in spans this
short, so that it is overstated rather than left out.

A step takes 5 ms because its model multiplies matrices for what is left of them; that time is not in the account of
CPU time, so that the rest can be seen. What begins and ends a run (the page is written there) is left out.
`besides the model` tells how fast the machine is.

Where others use the machine as well, differences of whole steps vary by more than what is sought. --inside does not:
it reads a clock before and after all that reporting and computing consist of. It misses what they do to the caches of
the rest, and adds a microsecond for each reading.
"""

from __future__ import annotations

import argparse
import functools
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
from ostinato import (
    DefaultFlowCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from ostinato.callbacks.events import QuietCallback
from ostinato.core.logged_numbers import TrackedNumbers
from ostinato.engine import report
from ostinato.engine.parameters import ModelParameters
from ostinato.engine.token_count import TokenCounter
from ostinato.evaluation import train_metrics
from ostinato.loss import model_outputs as outputs
from ostinato.loss.objective import ScaledLoss

LENGTH, VOCABULARY, WIDTH, ROWS = 32, 500, 16, 4
WARM_UP = 20  # steps of every leg that are not counted
SPAN = 100  # steps that are looked at together
TARGET = 5e-3  # seconds that a step should take
OURS = ("bar", "journal", "losses", "metrics", "tokens")
EVERYTHING = (*OURS, "tensorboard", "csv", "jsonl")
INSIDE = {
    "reporting": (
        "collecting the numbers of a log",
        "telling the callbacks of them",
        "looking for new parameters after that",
        "the bar",
    ),
    "computing what is reported": (
        "a training metric",
        "named losses",
        "a tracked number",
        "adding these up",
        "tokens without padding",
    ),
}
SHOWN_AND_KEPT = ("bar", "journal", "tensorboard", "csv", "jsonl")


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
        self.spans: Spans | None = None
        self.worked = 0.0  # CPU time that is taken out of the account
        self.matrix = torch.randn(128, 128)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, Any]:
        if self.steps >= WARM_UP and (self.steps - WARM_UP) % SPAN == 0 and self.spans is not None:
            self.spans.change(self.worked)
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
class Spans:
    """Lets a run report, and not report, by turns, and notes what a step takes then."""

    trainer: TwoLosses
    computes: bool = False  # what could be reported, always
    reports: bool = True  # now
    cpu: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})  # what threads do is counted
    wall: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    _since: tuple[float, float] | None = None
    _reporting: tuple[Any, ...] = ()

    def change(self, worked: float) -> None:
        cpu, wall = time.process_time() - worked, time.perf_counter()
        if self._since is not None:
            self.cpu[self.reports].append((cpu - self._since[0]) / SPAN)
            self.wall[self.reports].append((wall - self._since[1]) / SPAN)
        self.reports = not self.reports
        if self.reports:
            self._resume()
        else:
            self._stop()
        self._since = (time.process_time() - worked, time.perf_counter())

    def _stop(self) -> None:
        """What a run is like that has nothing to report."""
        trainer, handler, run = self.trainer, self.trainer.callback_handler, self.trainer._run
        state = trainer.state
        self._reporting = (
            handler.callbacks,
            trainer.tells,
            trainer._train_window,
            run.meters.count_tokens,
            state.logging_steps,
        )
        handler.callbacks = [one for one in handler.callbacks if isinstance(one, DefaultFlowCallback)]
        state.logging_steps = sys.maxsize
        if not self.computes:
            trainer.tells, trainer._train_window, run.meters.count_tokens = False, None, None

    def _resume(self) -> None:
        trainer, handler, run = self.trainer, self.trainer.callback_handler, self.trainer._run
        handler.callbacks, trainer.tells, trainer._train_window, run.meters.count_tokens, steps = self._reporting
        trainer.state.logging_steps = steps


@dataclass(frozen=True)
class Leg:
    """What the steps of one run took. Seconds."""

    added_cpu: float
    added_wall: float
    quiet_cpu: float  # a step that reports nothing
    quiet_wall: float


def train(
    directory: str, steps: int, every: int, parts: list[str], *,
    wait: float = 0.0, callbacks: Any = None, in_turns: bool = False, computes: bool = False,
) -> Leg | None:  # fmt: skip
    """One run; with no parts it reports nothing."""
    torch.manual_seed(0)
    model = Classifier(wait)
    trackers = [name for name in parts if name not in OURS]
    args = TrainingArguments(
        directory, per_device_train_batch_size=ROWS, max_steps=steps, learning_rate=1e-3, save_strategy="no",
        use_cpu=True, train_sampling_strategy="sequential", log_level="error",
        logging_strategy="steps" if parts else "no", logging_steps=every,
        report_to=trackers or "none", disable_tqdm="bar" not in parts,
        journal="journal" in parts, write_report="journal" in parts,
        include_num_input_tokens_seen="non_padding" if "tokens" in parts else "no",
    )  # fmt: skip
    trainer = TwoLosses(
        model, args, train_dataset=Rows(ROWS * 1000), callbacks=callbacks,
        train_metrics=["accuracy"] if "metrics" in parts else None,
    )  # fmt: skip
    trainer.tells = "losses" in parts
    if "bar" not in parts:
        trainer.remove_callback(PrinterCallback)
    spans = model.spans = Spans(trainer, computes) if in_turns else None
    trainer.train()
    if spans is None:
        return None
    quiet_cpu, quiet_wall = statistics.median(spans.cpu[False]), statistics.median(spans.wall[False])
    return Leg(_added(spans.cpu), _added(spans.wall), quiet_cpu, quiet_wall)


def _added(spans: dict[bool, list[float]]) -> float:
    """What reporting adds: each span that reports is compared with those before and after it."""
    loud, quiet = spans[True], spans[False]
    between = zip(quiet, loud, quiet[1:], strict=False)
    return statistics.median(one - (before + after) / 2 for before, one, after in between)


@dataclass
class Clock:
    """How long functions take where they are called, all calls of a run together."""

    seconds: dict[str, float] = field(default_factory=dict)

    def watch(self, owner: Any, name: str, label: str) -> None:
        inner, seconds = getattr(owner, name), self.seconds
        seconds.setdefault(label, 0.0)

        @functools.wraps(inner)
        def watched(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                seconds[label] += time.perf_counter() - begun

        setattr(owner, name, watched)


def inside(steps: int, every: int, work: float) -> dict[str, float]:
    """Microseconds of a step, by what they are for. Everything is on; the first fifth of the run is not counted."""
    clock = Clock()
    clock.watch(report, "collect_logs", "collecting the numbers of a log")
    clock.watch(Trainer, "log", "telling the callbacks of them")
    clock.watch(ModelParameters, "refresh", "looking for new parameters after that")
    clock.watch(ProgressCallback, "on_step_end", "the bar")
    clock.watch(train_metrics, "compute_loss", "a training metric")
    clock.watch(TwoLosses, "compute_loss", "the model")
    clock.watch(ScaledLoss, "_add_named", "named losses")
    clock.watch(outputs, "add", "their sum")  # which is the loss: without names it would be computed, too
    clock.watch(ostinato, "track", "a tracked number")
    clock.watch(TrackedNumbers, "commit", "adding these up")
    clock.watch(TokenCounter, "__call__", "tokens without padding")
    before: dict[str, float] = {}

    class Begin(QuietCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == steps // 5:
                before.update(clock.seconds)

    with tempfile.TemporaryDirectory() as directory:
        train(directory, steps, every, list(EVERYTHING), wait=work, callbacks=[Begin()])
    counted = steps - steps // 5
    found = {label: (seconds - before[label]) / counted * 1e6 for label, seconds in clock.seconds.items()}
    found["a training metric"] -= found.pop("the model")
    found["named losses"] -= found.pop("their sum")
    return found


def leg(options: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        found = train(
            directory, options.steps, options.every[0], options.parts,
            wait=options.work, in_turns=True, computes=options.computes,
        )  # fmt: skip
    assert found is not None
    return asdict(found)


def compare(
    processes: int, steps: int, every: int, parts: list[str], work: float, *, computes: bool = False
) -> list[Leg]:
    """How fast a process is depends on where its memory lies: there are several."""
    words = ["--steps", str(steps), "--every", str(every), "--work", str(work), "--parts", *parts]
    words += ["--computes"] if computes else []
    return [Leg(**OnATerminal(words).answer()) for _ in range(processes)]


def work_left() -> float:
    """How long the model has to multiply matrices for a step to take as long as it should."""
    (found,) = compare(1, WARM_UP + 7 * SPAN, 10, [], TARGET / 2)
    return max(TARGET - found.quiet_cpu, TARGET / 10)


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

    def __init__(self, words: list[str]) -> None:
        self._leader, follower = pty.openpty()
        self._ending, answer = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
        environment |= {"PYTHONPATH": str(Path(ostinato.__file__).parents[1]), "WANDB_MODE": "offline"}
        command = [sys.executable, str(Path(__file__).resolve()), *words, "--answer", str(answer)]
        self._home = tempfile.TemporaryDirectory()  # trackers write to where they are started, and to the user's home
        environment |= {"HOME": self._home.name, "WANDB_SILENT": "true"}
        self._child = subprocess.Popen(
            command, stdout=follower, env=environment, pass_fds=[answer], cwd=self._home.name
        )
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
    if options.memory:
        found: Any = memory(options.memory_steps, options.every[0])
    elif options.inside:
        found = inside(options.steps, options.every[0], options.work)
    else:
        found = leg(options)
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


def show_inside(options: argparse.Namespace) -> None:
    """The median of several processes, for each part and for both sums."""
    work = work_left()
    for every in options.every:
        words = ["--inside", "--steps", str(options.steps), "--every", str(every), "--work", str(work)]
        runs = [OnATerminal(words).answer() for _ in range(options.processes)]
        for kind, labels in INSIDE.items():
            sums = [sum(run[label] for label in labels) for run in runs]
            middle, spread = statistics.median(sums), f"{min(sums):.0f} to {max(sums):.0f}"
            share = middle / (TARGET * 1e6)
            print(f"{kind}, a log every {every} steps: {middle:.0f} us (by process {spread}), {share:.1%} of 5 ms")
            for label in labels:
                print(f"    {statistics.median(run[label] for run in runs):6.1f} us  {label}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--every", type=int, nargs="+", default=[10, 1], help="logging_steps")
    parser.add_argument("--trackers", nargs="+", default=[], help="trackers besides tensorboard, csv and jsonl")
    parser.add_argument("--each", action="store_true", help="each part by itself as well")
    parser.add_argument("--inside", action="store_true", help="with clocks inside a run")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-steps", type=int, default=50_000)
    parser.add_argument("--parts", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--computes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        answer(options)
    elif options.memory:
        show_memory(options)
    elif options.inside:
        show_inside(options)
    else:
        rows = [
            ("everything", list(EVERYTHING), False),
            ("reporting all of it", list(EVERYTHING), True),
            ("what is shown and kept", list(SHOWN_AND_KEPT), False),
        ]
        rows += [(f"with {name}", [*EVERYTHING, name], False) for name in options.trackers]
        rows += [(f"{name} alone", [name], False) for name in EVERYTHING if options.each]
        work = work_left()
        for name, parts, computes in rows:
            for every in options.every:
                found = compare(options.processes, options.steps, every, parts, work, computes=computes)
                print(f"{name:22} a log every {every:2} steps: {_told(found)}", flush=True)


def _told(found: list[Leg]) -> str:
    def mean(name: str) -> float:
        return statistics.mean(getattr(one, name) for one in found)

    each = sorted(one.added_wall for one in found)
    return (
        f"{mean('added_wall') / mean('quiet_wall'):+5.1%} ({mean('added_wall') * 1e6:.0f} us; by process "
        f"{each[0] * 1e6:.0f} to {each[-1] * 1e6:.0f}) on steps of {mean('quiet_wall') * 1e3:.1f} ms, "
        f"{mean('quiet_cpu') * 1e6:.0f} us of them besides the model; "
        f"{mean('added_cpu') * 1e6:.0f} us of CPU time a step"
    )


if __name__ == "__main__":
    main()
