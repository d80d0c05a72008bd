"""A sampler of Optuna's that records what it draws, so that a killed search goes on as if it had not been killed.

After every draw, the values drawn for the trial and the state of the sampler's random streams are written to the
study's directory. A trial that was broken off is opened again: what was drawn for it is returned as it was recorded,
and the streams go on where they were. A sampler is thus a function of the study, whatever process asks it. States are
plain numbers; nothing is pickled.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from optuna.samplers import BaseSampler

from ..core.notices import note
from .study_directory import StudyDirectory

_MAX_DEPTH = 4


class RecordedSampler(BaseSampler):
    """Passes everything on to a sampler, and records it."""

    def __init__(self, sampler: BaseSampler, directory: StudyDirectory) -> None:
        self._sampler, self._directory = sampler, directory
        self._number = -1  # of the current trial
        self._draws: dict[str, Any] = {}
        self.is_exhausted = False

    @property
    def name(self) -> str:
        return type(self._sampler).__name__

    # ---- trials ----------------------------------------------------------------------------------------------------

    def open_trial(self, number: int, *, is_alone: bool) -> None:
        """Prepare for a trial, new or broken off.

        Args:
            number: Its number.
            is_alone: No other worker trains a trial now; otherwise the streams are moved to a place of their own, as
                both would draw the same.
        """
        recorded = self._directory.read_draws(number)
        if recorded is not None:
            self._restore(recorded)
        elif self._number != number - 1:
            before = self._directory.read_draws(number - 1) if number else None
            if before is not None:
                self._restore(before)
            elif number:
                note(f"the draws before trial {number} are not recorded here: the sampler goes on from a new place")
                self._move(number)
        if recorded is None and not is_alone:
            self._move(number)
        self._number = number
        self._draws = {"begun": False, "relative": None, "independent": {}} if recorded is None else recorded

    def _restore(self, recorded: dict[str, Any]) -> None:
        if recorded.get("sampler") != self.name:
            note(f"the study was sampled by {recorded.get('sampler')}, and now by {self.name}: its streams begin anew")
            return
        states = recorded["streams"]
        for path, stream in _find_streams(self._sampler):
            if path in states:
                _write_state(stream, states[path])

    def _move(self, number: int) -> None:
        seed = zlib.crc32(f"{self._directory.study} {number}".encode())
        for index, (_, stream) in enumerate(_find_streams(self._sampler)):
            _seed(stream, seed + index)

    def _record(self, **draws: Any) -> None:
        self._draws.update(draws)
        streams = {path: _read_state(stream) for path, stream in _find_streams(self._sampler)}
        self._draws.update(sampler=self.name, streams=streams)
        self._directory.write_draws(self._number, self._draws)

    # ---- what Optuna calls -----------------------------------------------------------------------------------------

    def reseed_rng(self) -> None:
        self._sampler.reseed_rng()

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        if self._draws.get("relative") is not None:
            return self._draws["relative"]
        drawn = self._sampler.sample_relative(study, trial, search_space)
        self._record(relative=_make_plain(drawn))
        return drawn

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        known = self._draws.setdefault("independent", {})
        if param_name in known:
            return known[param_name]
        drawn = self._sampler.sample_independent(study, trial, param_name, param_distribution)
        self._record(independent={**known, param_name: _make_plain({"": drawn})[""]})
        return drawn

    def before_trial(self, study: Any, trial: Any) -> None:
        if self._draws.get("begun"):
            return
        self._sampler.before_trial(study, trial)
        self._record(begun=True)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        try:
            self._sampler.after_trial(study, trial, state, values)
        except RuntimeError:  # a grid is exhausted: `study.stop()` works inside `study.optimize` alone
            self.is_exhausted = True
        self._record()


# ---- random streams ------------------------------------------------------------------------------------------------


def _find_streams(owner: Any, path: str = "", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the random streams of a sampler and of its parts, with their places."""
    for name, value in sorted(getattr(owner, "__dict__", {}).items()):
        place = f"{path}.{name}" if path else name
        if type(value).__name__ == "LazyRandomState":
            yield place, value.rng
        elif isinstance(value, (np.random.RandomState, np.random.Generator, random.Random)):
            yield place, value
        elif depth and type(value).__module__.startswith("optuna."):
            yield from _find_streams(value, place, depth - 1)


def _read_state(stream: Any) -> Any:
    if isinstance(stream, random.Random):
        version, numbers, gauss = stream.getstate()
        return [version, list(numbers), gauss]
    state = stream.bit_generator.state if isinstance(stream, np.random.Generator) else stream.get_state(legacy=False)
    return _make_plain(state)


def _write_state(stream: Any, state: Any) -> None:
    if isinstance(stream, random.Random):
        stream.setstate((state[0], tuple(state[1]), state[2]))
    elif isinstance(stream, np.random.Generator):
        stream.bit_generator.state = state
    else:
        stream.set_state(state)


def _seed(stream: Any, seed: int) -> None:
    if isinstance(stream, np.random.Generator):
        stream.bit_generator.state = np.random.Generator(type(stream.bit_generator)(seed)).bit_generator.state
    else:
        stream.seed(seed)


def _make_plain(value: Any) -> Any:
    """Return a value as JSON has it, with numbers exactly as they are."""
    if isinstance(value, dict):
        return {name: _make_plain(one) for name, one in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value
