"""The best trial of a search, from what the search has left on disk: its values, and its weights."""

from __future__ import annotations

from ..arguments.trial_values import set_values
from ..core.errors import CheckpointError, ConfigError
from ..core.notices import note
from ..core.outputs import BestRun
from ..journal.study_record import StudyRecord, TrialRecord, read_study
from .fixed_trial import FixedTrial
from .host import SearchHost


def load_best_trial(trainer: SearchHost, number: int | None = None) -> BestRun:
    """Build the model of the best trial, load its weights, and set its values as arguments.

    Raises:
        NoStudyError: There is no search in the output directory.
        ConfigError: No trial is complete, or none of this number is among the best.
        CheckpointError: Its weights are gone.
    """
    record = read_study(trainer._output_path)
    best = _choose(record, number)
    weights = record.output_dir / (best.weights or "")
    if best.weights is None or not weights.is_dir():
        raise CheckpointError(
            what=f"the weights of trial {best.number} are not in {record.output_dir}",
            why="they were not saved, or were deleted since" if best.weights is None else f"{weights} is gone",
            fix=f"train it again: trainer.train(trial={best.params!r})",
        )
    if trainer._makes_models():
        trainer.model = trainer.call_model_init(FixedTrial(best.params, best.number))
    set_values(trainer.args, best.arguments)
    trainer._adopt_model()
    trainer._load_from_checkpoint(str(weights))
    note(f"loaded the model of trial {best.number}, from {weights}")
    return build_best_run(best)


def build_best_run(trial: TrialRecord) -> BestRun:
    """Return a recorded trial as a search returns it."""
    values = trial.values or ()
    return BestRun(trial.id, values[0] if len(values) == 1 else list(values), trial.params)


def _choose(record: StudyRecord, number: int | None) -> TrialRecord:
    best = record.find_best()
    if number is not None:
        best = [one for one in best if one.number == number]
    if not best:
        known = [one.number for one in record.find_best()]
        raise ConfigError(
            what=f"the search in {record.output_dir} has no best trial" + (f" {number}" if number is not None else ""),
            why=f"the best are {known}" if known else "no trial is complete",
            fix="name one of these" if known else "go on with the search",
        )
    return best[0]
