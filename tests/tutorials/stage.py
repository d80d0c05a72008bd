"""Runs scripts on request, each in a copy of one process that has imported what they all need.

`python stage.py` runs them on transformers, `ostinato exec stage.py` on Ostinato: the scripts know nothing of it. A
copy is made by `fork`, so that what a script leaves behind (environment, streams of random numbers, the singletons of
accelerate, lines that are said once) ends with it. Requests are lines of JSON on the standard input; the answer to
each is a line too: what happened to the trainers of the script.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import datasets  # noqa: F401
import torch
import torch._dynamo
from transformers import (  # noqa: F401
    BertConfig,
    BertForMaskedLM,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    ViTForImageClassification,
)

if importlib.util.find_spec("peft") is not None:
    import peft  # noqa: F401

LOOPS = ("ostinato.engine.loop", "transformers.trainer")


class Witness(TrainerCallback):
    """Sees whose code takes the steps."""

    def __init__(self) -> None:
        self.loops: set[str] = set()
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1
        frame: Any = sys._getframe(1)
        while frame is not None:
            self.loops.update({frame.f_globals.get("__name__", "")} & set(LOOPS))
            frame = frame.f_back


def watch(trainer_class: Any) -> list[tuple[Any, Witness]]:
    """A list to which every trainer that is made from now on is added, with its witness."""
    made: list[tuple[Any, Witness]] = []
    make = trainer_class.__init__

    @functools.wraps(make)
    def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        made.append((self, Witness()))
        self.add_callback(made[-1][1])

    trainer_class.__init__ = make_and_note
    return made


def report(trainer: Any, witness: Witness) -> dict[str, Any]:
    best = trainer.state.best_model_checkpoint
    return {
        "classes": [f"{one.__module__}.{one.__qualname__}" for one in type(trainer).__mro__],
        "arguments": [f"{one.__module__}.{one.__qualname__}" for one in type(trainer.args).__mro__],
        "loops": sorted(witness.loops),
        "steps": witness.steps,
        "history": trainer.state.log_history,
        "state": {name: getattr(trainer.state, name) for name in ("global_step", "max_steps", "epoch", "best_metric")},
        "best": best and Path(best).name,
        "weights": digest(trainer.model),
    }


def digest(model: torch.nn.Module) -> str:
    """Equal for equal bits."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def perform(script: str, arguments: list[str]) -> dict[str, Any]:
    """Run a script to its end, and tell of its trainers and of what it printed itself."""
    made, printed = watch(Trainer), []

    def note_and_print(*values: Any, **options: Any) -> None:
        printed.append(" ".join(map(str, values)))
        print(*values, **options)

    sys.argv = [script, *arguments]
    runpy.run_path(script, {"print": note_and_print}, run_name="__main__")
    return {"trainers": [report(*one) for one in made], "printed": printed}


def in_a_copy(request: dict[str, Any]) -> dict[str, Any]:
    """Perform in a copy of this process, in a directory of its own; its output is left in a file beside."""
    directory = Path(request["directory"])
    directory.mkdir(parents=True)
    told = Path(f"{directory}.report.json")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            output = os.open(f"{directory}.output", os.O_WRONLY | os.O_CREAT, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(directory)
            told.write_text(json.dumps(perform(request["script"], request["arguments"]), default=float))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        return {"failed": Path(f"{directory}.output").read_text()[-4000:]}
    return json.loads(told.read_text())


def warm_up() -> None:
    """What a process does once and every copy would do again: transformers' table of names that weights were saved
    under, hundreds of patterns; modules that are imported when they are first needed.
    """
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    with tempfile.TemporaryDirectory() as directory, torch.random.fork_rng():
        model = BertForMaskedLM(BertConfig(vocab_size=8, **sizes))
        model.save_pretrained(directory)
        BertForMaskedLM.from_pretrained(directory)
        ids = torch.zeros(1, 2, dtype=torch.long)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
        torch.save(optimizer.state_dict(), Path(directory, "optimizer.pt"))
    if "ostinato" in sys.modules:
        importlib.import_module("ostinato.report.run_page")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    gc.freeze()  # what was imported needs no collecting, in no copy
    for line in sys.stdin:
        answer = json.dumps(in_a_copy(json.loads(line)))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
