"""Agreement between the processes of a run: all follow the same commands, and stop, after the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from ..arguments.shared_values import check_equal, list_shared_values
from ..callbacks.control_file import ControlFileCallback, Processes
from ..callbacks.time_limit import TimeLimitCallback
from ..core.errors import ConfigError
from ..core.protocols import Strategy
from ..data.sizes import has_length
from ..journal.environment import read_versions
from .ballot import VOTE_EVERY
from .run import Run
from .run_host import AgreementHost

ASK_EVERY = 10  # steps between two looks at a control file: each is a message to all processes
_COMPARED = ("ostinato", "torch", "transformers")  # other versions of them exchange other things
_TOLD_AFTER = VOTE_EVERY + 1  # steps after which all processes stop that one of them was asked to


def check_processes(trainer: AgreementHost) -> None:
    """Raise, in all processes, if they differ in what they have to agree on: they would wait for one another."""
    if trainer.strategy.processes == 1:
        return
    packages = {name: version for name, version in read_versions().items() if name in _COMPARED}
    facts = {**list_shared_values(trainer.args), **_measure_data(trainer), **packages}
    check_equal(trainer.strategy.gather_from_all(facts))


def _measure_data(trainer: AgreementHost) -> dict[str, str]:
    """Return the number of rows of each data set that the library divides among the processes itself."""
    sets: dict[str, Any] = {}
    divides = trainer.sampler is None and trainer.batch_sampler is None
    if divides and not any(map(trainer._is_overridden, ("get_train_dataloader", "_get_train_sampler"))):
        sets["train_dataset"] = trainer.train_dataset
    if not any(map(trainer._is_overridden, ("get_eval_dataloader", "_get_eval_sampler"))):
        given = trainer.eval_dataset
        named = {f"eval_dataset {name!r}": one for name, one in given.items()} if isinstance(given, dict) else {}
        sets |= named or {"eval_dataset": given}
    return {
        f"number of rows in {name}": str(len(one))
        for name, one in sets.items()
        if has_length(one) and not isinstance(one, DataLoader)
    }


def attach_control_file(callbacks: Sequence[Any], strategy: Strategy, run: Run) -> None:
    """Connect the callbacks that depend on other processes to the run.

    A `ControlFileCallback` gets the processes it acts with. A `TimeLimitCallback` gets the number of steps that are
    taken before a stop.
    """
    for callback in callbacks:
        if isinstance(callback, TimeLimitCallback):
            callback.set_check_interval(1 if strategy.processes == 1 else _TOLD_AFTER)
    with_file = [callback for callback in callbacks if isinstance(callback, ControlFileCallback)]
    if strategy.processes > 1:
        _check_equal_counts(len(with_file), strategy)
    for callback in with_file:
        callback.join(_Alone(run) if strategy.processes == 1 else _Several(run, strategy))


def _check_equal_counts(own: int, strategy: Strategy) -> None:
    """Raise if the numbers of control file callbacks differ: a process would wait for ever for an answer."""
    counts = strategy.gather_from_all(own)
    if len(set(counts)) > 1:
        raise ConfigError(
            what="not all processes have the same number of ControlFileCallback",
            why=f"they have {', '.join(map(str, counts))}, and what the file says is done by all of them together",
            fix="give it to the trainer of every process; the first of them reads the file",
        )


@dataclass
class _Alone(Processes):
    run: Run

    def exclude_wait(self, seconds: float) -> None:
        """Leave the wait out of the run's clocks, so that speeds are those of training."""
        self.run.started += seconds
        self.run.ledger.began += seconds


@dataclass
class _Several(_Alone):
    strategy: Strategy
    ask_every = ASK_EVERY

    def broadcast_text(self, text: str) -> str:
        # Exchange one flag first: most of the time there is no text.
        if not self.strategy.any(self.strategy.rank == 0 and bool(text)):
            return ""
        return self.strategy.broadcast_object(text)

    def is_stopping(self) -> bool:
        return self.run.stop.agree is not None and self.run.stop.agree()
