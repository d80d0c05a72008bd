"""Files with what transformers did in tests: one for each file of tests, as JSON whose differences can be read."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.digests import hash_of
from tests.support.numerics_probe import probe_numerics

# What takes part in computing transformers' numbers.
PACKAGES = ("transformers", "torch", "accelerate", "numpy", "datasets", "peft", "tokenizers")

FORMAT = 1  # of the files
WIDTH = 150  # of a line that is not broken up
SHARED = 300  # characters from which on a value that occurs twice is written once


def describe_environment() -> dict[str, Any]:
    """Return all that has to be the same for a recording to be used: versions, and how the machine computes."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package).partition("+")[0]  # whatever the build
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    return {"format": FORMAT, "versions": versions, "numerics": probe_numerics()}


class Recordings:
    """A folder of recordings, made in one environment: `environment.json` says in which."""

    def __init__(self, folder: Path, environment: dict[str, Any]) -> None:
        self.folder = folder
        self.environment = environment
        self._tests: dict[str, dict[str, Any]] = {}

    def explain_unusable(self) -> str | None:
        """Say why nothing of this folder holds here; None if it does."""
        file = self.folder / "environment.json"
        if not file.is_file():
            return "nothing is recorded: run make record"
        recorded = json.loads(file.read_text(encoding="utf-8"))
        if recorded["format"] != self.environment["format"]:
            return "the recordings have another format: run make record"
        for package, version in self.environment["versions"].items():
            if (then := recorded["versions"].get(package, "none")) != version:
                return f"{package} {version} is installed, recorded was {then}: run make record"
        if recorded["numerics"] != self.environment["numerics"]:
            return "this CPU computes other numbers than the recording's"
        return None

    def find(self, file: str, test: str) -> dict[str, Any] | None:
        """Return what is recorded of a test; `file` is relative to the folder of tests."""
        if file not in self._tests:
            path = self._path(file)
            self._tests[file] = unfold(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        return self._tests[file].get(test)

    def update(self, file: str, tests: dict[str, Any], keep: Callable[[str, Any], bool]) -> None:
        """Write what was recorded now; of what was there before, `keep(test, entry)` says what still holds."""
        self.find(file, "")
        before = {name: entry for name, entry in self._tests[file].items() if keep(name, entry)}
        content = dict(sorted({**before, **tests}.items()))
        path = self._path(file)
        if content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(format_json(fold(content)) + "\n", encoding="utf-8")
        else:
            path.unlink(missing_ok=True)
        self._tests[file] = content

    def begin(self) -> None:
        """Throw away what was recorded elsewhere or with other versions."""
        if self.explain_unusable() is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._tests.clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "environment.json").write_text(format_json(self.environment) + "\n", encoding="utf-8")

    def remove_unless(self, exists: Callable[[str], bool]) -> None:
        """Delete recordings of files of tests that are no more."""
        for path in self.folder.rglob("*/*.json"):
            if not exists(path.relative_to(self.folder).with_suffix(".py").as_posix()):
                path.unlink()

    def _path(self, file: str) -> Path:
        return (self.folder / file).with_suffix(".json")


# -------------------------------------------------------------------------------------------------------------- format


def fold(tests: dict[str, Any]) -> dict[str, Any]:
    """Write parts of values that occur more than once a single time: most runs have the events of some other."""
    counts: Counter[str] = Counter()
    shared: dict[str, Any] = {}

    def count(value: Any) -> Any:
        counts[text := _compact(value)] += 1
        return map_parts(value, count) if counts[text] == 1 else value

    def refer(value: Any) -> Any:
        text = _compact(value)
        if len(text) < SHARED or counts[text] < 2 or not isinstance(value, (list, dict)):
            return map_parts(value, refer)
        if (key := hash_of(text)[:8]) not in shared:
            shared[key] = map_parts(value, refer)
        return {"$shared": key}

    map_values(tests, count)
    return {"tests": map_values(tests, refer), "shared": dict(sorted(shared.items()))}


def unfold(content: dict[str, Any]) -> dict[str, Any]:
    """Undo `fold`."""

    def resolve(value: Any) -> Any:
        if isinstance(value, dict) and list(value) == ["$shared"]:
            value = content["shared"][value["$shared"]]
        return map_parts(value, resolve)

    return map_values(content["tests"], resolve)


def map_values(tests: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Change the value of every call."""

    def change_call(call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "value": change(call["value"])} if "value" in call else call

    return {name: {**entry, "calls": [change_call(call) for call in entry["calls"]]} for name, entry in tests.items()}


def map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change what is directly in a list or a dict."""
    if isinstance(value, list):
        return [change(one) for one in value]
    return {key: change(one) for key, one in value.items()} if isinstance(value, dict) else value


def format_json(value: Any, indent: str = "") -> str:
    """Return JSON in which what fits on a line is on one, and what has no parts of its own always."""
    text = _compact(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(text) <= WIDTH or not any(isinstance(part, (list, dict)) for part in parts):
        return text
    inner = indent + " "
    if isinstance(value, list):
        lines = [format_json(one, inner) for one in value]
    else:
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {format_json(one, inner)}" for key, one in value.items()]
    left, right = "[]" if isinstance(value, list) else "{}"
    body = ",\n".join(f"{inner}{line}" for line in lines)
    return f"{left}\n{body}\n{indent}{right}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
