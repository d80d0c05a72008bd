"""Event files, read by TensorBoard's readers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def read_events(directory: Path) -> list[tuple[int, float, dict[str, float]]]:
    """Step, time and numbers of every event, in the order of TensorBoard's own reader."""
    watcher = import_module("tensorboard.backend.event_processing.directory_watcher")
    loader = import_module("tensorboard.backend.event_processing.event_file_loader")
    events = watcher.DirectoryWatcher(str(directory), loader.LegacyEventFileLoader).Load()
    return [
        (event.step, event.wall_time, {value.tag: value.simple_value for value in event.summary.value})
        for event in events
    ]


def read_numbers(directory: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for step, _, numbers in read_events(directory):
        for name, value in numbers.items():
            found.setdefault(name, []).append((step, value))
    return found
