"""Every test of a task works in a directory of its own, with a cache of its own, and without the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
pytest.importorskip("scipy.io")  # `datasets` imports it with the first file, and it sets an environment variable


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    yield
    datasets.enable_progress_bars()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of a file have the models that they share: they read them, and write elsewhere."""
    return tmp_path_factory.mktemp("shelf")
