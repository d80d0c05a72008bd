"""One face for two libraries: the same script runs on `transformers` and on `ostinato`."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.support.records import make_recorder

LIBRARIES = ("transformers", "ostinato")

QUIET = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "dataloader_pin_memory": False}

_loaded: set[str] = set()


def load_library(name: str) -> Any:
    """Import a library; what transformers' own import warns about is not ours to judge."""
    if name != "transformers" or name in _loaded:
        return importlib.import_module(name)
    _loaded.add(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(name)
        module.logging.set_verbosity_error()
        module.logging.disable_progress_bar()
        importlib.import_module("transformers.trainer")
        importlib.import_module("accelerate")
    gc.freeze()  # transformers collects garbage after every run: half a second, unless what it imported is exempt
    return module


class Api:
    """A library, an output directory, and the trainers that a script has built with them.

    Names of the library are attributes (`api.Trainer`, `api.TrainingArguments`, ...).
    """

    def __init__(self, name: str, output_dir: Path) -> None:
        self.name = name
        self.library = load_library(name)
        self.output_dir = Path(output_dir)
        self.trainers: list[Any] = []
        self.recorders: list[Any] = []
        self.train_outputs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    @property
    def is_ours(self) -> bool:
        return self.name == "ostinato"

    def ours(self, **arguments: Any) -> dict[str, Any]:
        """Arguments that only ostinato knows: `api.args(seed=1, **api.ours(isolate_rng=False))`."""
        return arguments if self.is_ours else {}

    def args(self, **arguments: Any) -> Any:
        """`TrainingArguments` that are quiet, on the CPU, and log every step unless told otherwise."""
        defaults = dict(
            QUIET, output_dir=str(self.output_dir), logging_steps=1, save_strategy="no", learning_rate=1e-2
        )
        return self.TrainingArguments(**{**defaults, **arguments})

    def trainer(
        self,
        model: Any = None,
        args: Any = None,
        *,
        cls: Any = None,
        callbacks: Any = (),
        prints: bool = False,
        **rest: Any,
    ) -> Any:
        """Build a trainer that records its events; the last one built is the one compared.

        `prints`: keep the callback that prints log lines. transformers' takes `total_flos` out of the metrics while
        printing, so that what `train()` returns depends on it.
        """
        recorder = make_recorder(self.TrainerCallback)
        trainer = (cls or self.Trainer)(model=model, args=args, callbacks=[*callbacks, recorder], **rest)
        if not prints:
            trainer.remove_callback(self.PrinterCallback)
        self.trainers.append(trainer)
        self.recorders.append(recorder)
        return trainer

    def train(self, trainer: Any, **rest: Any) -> Any:
        """Train, and keep what `train()` returned."""
        output = trainer.train(**rest)
        self.train_outputs.append(output)
        return output

    def fit(self, model: Any, data: Any, *, trainer: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """Arguments, trainer and training in one line; returns the trainer."""
        built = self.trainer(model, self.args(**arguments), train_dataset=data, **(trainer or {}))
        self.train(built)
        return built


@contextlib.contextmanager
def guest(name: str) -> Iterator[None]:
    """Let a library run without leaving traces: environment, numerics flags, and transformers' own warnings."""
    environment = dict(os.environ)
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        with warnings.catch_warnings():
            if name == "transformers":
                for module in ("transformers", "accelerate", "datasets"):
                    warnings.filterwarnings("ignore", module=rf"{module}(\..*)?$")
            yield
    finally:
        if name == "transformers":
            _restore_environment(environment)
            torch.use_deterministic_algorithms(deterministic)
            _forget_accelerate()


def _restore_environment(before: dict[str, str]) -> None:
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


def _forget_accelerate() -> None:
    """accelerate keeps precision and device in process-wide singletons; the next run starts without them."""
    state = importlib.import_module("accelerate.state")
    state.AcceleratorState._reset_state(reset_partial_state=True)
    state.GradientState._reset_state()
