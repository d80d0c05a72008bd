"""One trial: from clean state to an outcome. A trial that fails is recorded with its reason; the search goes on."""

from __future__ import annotations

import gc
import sysconfig
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from ..arguments.secrets import remove_keys
from ..checkpoint.atomic import atomic_directory
from ..core import accelerator
from ..core.errors import NonFiniteError, OstinatoError
from ..core.out_of_memory import is_out_of_memory
from ..journal.study_record import COMPLETE, FAILED, PRUNED, StudyRecord, TrialRecord, describe_reason
from .objective_value import compute, has_nan, list_values
from .search_errors import ObjectiveError, all_failed
from .session import SearchSession, get_params

_MAX_TEXT = 2_000  # characters of a reason
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} | {str(Path(__file__).parents[1])}
)


@dataclass
class Outcome:
    """How a trial has ended."""

    state: str
    values: tuple[float, ...] | None = None
    reason: dict[str, str] | None = None
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    params: dict[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    is_best: bool = False


def run_trial(session: SearchSession, trial: Any, number: int, checkpoint: Path | None = None) -> Outcome:
    """Train one trial from clean state, and keep its weights if it is among the best so far."""
    trainer, begun = session.trainer, perf_counter()
    session.number, session.metrics, trainer.objective = number, {}, None
    session.has_reported = False
    session.restore()
    session.release()
    outcome = _train(session, trial, checkpoint)
    outcome.params = get_params(trial)
    outcome.seconds = perf_counter() - begun
    outcome.step, outcome.steps = trainer.state.global_step, trainer.state.max_steps
    if outcome.state == COMPLETE:
        _keep_weights(session, outcome)
    return outcome


def conclude_stopped_trial(session: SearchSession) -> Outcome:
    """Return the outcome of a trial that its library has stopped at an evaluation: complete if that was the last."""
    trainer = session.trainer
    is_whole = trainer.state.global_step >= trainer.state.max_steps
    values = None if trainer.objective is None else list_values(trainer.objective)
    outcome = Outcome(COMPLETE if is_whole and values is not None else PRUNED, values)
    outcome.params = get_params(trainer._trial)
    outcome.step, outcome.steps = trainer.state.global_step, trainer.state.max_steps
    if outcome.state == COMPLETE:
        _keep_weights(session, outcome)
    return outcome


def _train(session: SearchSession, trial: Any, checkpoint: Path | None) -> Outcome:
    trainer = session.trainer
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint), trial=trial)
        if trainer.objective is None:  # nothing was evaluated during training
            session.metrics = trainer.evaluate()
            trainer.objective = compute(trainer.compute_objective, session.metrics, session.directions)
        values = list_values(trainer.objective)
    except session.pruned:
        values = None if trainer.objective is None else list_values(trainer.objective)
        return Outcome(PRUNED, values)
    except Exception as error:
        if isinstance(error, ObjectiveError) and not any(one.state == COMPLETE for one in session.read().trials):
            raise  # it would be so in every trial
        if trainer.strategy.size > 1 and not isinstance(error, NonFiniteError):
            _record_failure(session, trial, error)  # the other processes may not have failed
            raise
        return Outcome(FAILED, reason=_describe(session, error))
    if has_nan(values):
        return Outcome(FAILED, reason={"type": "NaN", "text": "the objective is not a number"})
    return Outcome(COMPLETE, values)


def _describe(session: SearchSession, error: Exception) -> dict[str, str]:
    """Return the reason of a failure, without a reference to the error: it would keep the model in memory."""
    kind = "OutOfMemory" if is_out_of_memory(error) else type(error).__name__
    reason = _name(kind, error)
    error.__traceback__ = None
    session.release()
    gc.collect()
    accelerator.empty_cache(session.trainer.strategy.device)
    return reason


def _name(kind: str, error: Exception) -> dict[str, str]:
    return {"type": kind, "text": remove_keys(str(error))[:_MAX_TEXT], "where": _locate(error)}


def _locate(error: Exception) -> str:
    """Return the last line of the user's that led to an error, or else the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if not any(frame.filename.startswith(place) for place in _LIBRARIES)]
    if not found and isinstance(error, OstinatoError):  # it says what to do
        return ""
    return "".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in (found or frames)[-1:])


def _record_failure(session: SearchSession, trial: Any, error: Exception) -> None:
    if session.is_leader:
        reason = _name(type(error).__name__, error)
        end_trial(session, Outcome(FAILED, reason=reason, params=get_params(trial)))


# ---- weights -------------------------------------------------------------------------------------------------------


def _keep_weights(session: SearchSession, outcome: Outcome) -> None:
    """Write the weights of a trial that is the best so far, or that no other surpasses."""
    trainer = session.trainer
    if session.is_leader:
        outcome.is_best = session.number in {one.number for one in _find_best_with(session, outcome)}
    if trainer.strategy.size > 1:
        outcome.is_best = trainer.strategy.broadcast_object(outcome.is_best)
    if not outcome.is_best:
        return
    target = session.directory.find_model(session.number)
    if session.is_leader:
        target.parent.mkdir(parents=True, exist_ok=True)
    trainer.strategy.barrier()
    with atomic_directory(target, leader=session.is_leader, barrier=trainer.strategy.barrier) as scratch:
        trainer.save_model(str(scratch), _internal_call=True)
    outcome.weights = target


def _find_best_with(session: SearchSession, outcome: Outcome) -> list[TrialRecord]:
    """Return the best trials if this one has ended, too."""
    record = session.read()
    record.trials = [one for one in record.trials if one.number != session.number]
    this = TrialRecord(session.number, "", "", "", outcome.params, 0.0, state=outcome.state, values=outcome.values)
    record.trials.append(this)
    return record.find_best()


def end_trial(session: SearchSession, outcome: Outcome) -> None:
    """Record the end of a trial and show it; delete weights that it has surpassed."""
    weights = None if outcome.weights is None else session.directory.relative(outcome.weights)
    known = session.read().trials if outcome.step == 0 else []
    if outcome.step == 0 and session.number not in {one.number for one in known}:  # it failed before it began
        identifier = session.trial_id or str(session.number)
        session.writer.write("trial", number=session.number, id=identifier, params=outcome.params)
    session.writer.write(
        "end",
        number=session.number,
        state=outcome.state,
        params=outcome.params,
        values=outcome.values,
        step=outcome.step,
        steps=outcome.steps,
        seconds=round(outcome.seconds, 4),
        metrics=session.metrics,
        reason=outcome.reason,
        weights=weights,
    )
    session.display.end_trial(session.number, outcome, outcome.params, is_best=outcome.is_best)
    if outcome.is_best:
        discard_surpassed(session)


def discard_surpassed(session: SearchSession) -> None:
    """Delete the weights of trials that are not among the best any more."""
    with session.directory.lock():
        session.directory.discard_models({one.number for one in session.read().find_best()})


def check_outcomes(record: StudyRecord) -> None:
    """Raise if no trial of a search is complete."""
    if not record.find_best():
        reasons = {
            one.number: f"trial {one.number}: {describe_reason(one.reason)}"
            for one in record.trials
            if one.state == FAILED and one.reason is not None
        }
        raise all_failed(reasons)
