"""Describe the environment of a run: versions, machine, code, command. No program is run."""

from __future__ import annotations

import math
import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from ..arguments.secrets import remove_secrets
from ..core import accelerator
from ..core.memory_tracker import read_resident_bytes

# Those that may change what a run computes. Only what is imported is looked up: looking takes time.
_PACKAGES = (
    "torch",
    "numpy",
    "safetensors",
    "transformers",
    "tokenizers",
    "datasets",
    "accelerate",
    "peft",
    "trl",
    "sentence_transformers",
    "torchvision",
    "torchaudio",
    "bitsandbytes",
    "flash_attn",
    "sklearn",
)
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_MAX_WORD = 2_000
_SECONDS_BETWEEN_READS = 0.25  # at the memory: a look takes as long as writing a line of the journal


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return Python, platform, device, and the versions of imported packages; no host or user name."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "packages": read_versions(),
    }
    with suppress(Exception):  # a driver that does not answer is no reason to stop
        found |= accelerator.describe_device(device)
    return found


def read_versions() -> dict[str, str]:
    """Return the versions of imported packages that may change what a run computes."""
    versions = {"ostinato": getattr(sys.modules.get(__name__.partition(".")[0]), "__version__", "")}
    for name in _PACKAGES:
        if name in sys.modules:
            version = getattr(sys.modules[name], "__version__", None)
            if version is None:
                with suppress(metadata.PackageNotFoundError):
                    version = metadata.version(_DISTRIBUTIONS.get(name, name))
            versions[name] = str(version)
    return versions


def describe_command() -> dict[str, Any]:
    """Return the command that started this process."""
    words = list(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return {
        "words": [_shorten(word) for word in remove_secrets(words)],
        "directory": _get_working_directory(),
        "script": main,
        "notebook": "ipykernel" in sys.modules,
        "launcher": _describe_launcher(),
    }


def _describe_launcher() -> dict[str, Any] | None:
    """Return the launcher, if it was torchrun, and its number of processes."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    counts = {"nodes": "GROUP_WORLD_SIZE", "per_node": "LOCAL_WORLD_SIZE"}
    given = {name: os.environ.get(variable, "") for name, variable in counts.items()}
    return {"name": "torchrun", **{name: int(one) if one.isdecimal() else 1 for name, one in given.items()}}


def _shorten(word: str) -> str:
    return word if len(word) <= _MAX_WORD else f"{word[:_MAX_WORD]}…"


def _get_working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it has been deleted
        return None


def find_code_version() -> dict[str, str] | None:
    """Return the commit of the script's repository, read from its files; None outside of a repository.

    Whether files were changed since is not known: finding out means running git, which may take long or hang.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    start = Path(main).parent if main else Path(_get_working_directory() or ".")
    with suppress(OSError, ValueError):
        for folder in (start.resolve(), *start.resolve().parents):
            if (folder / ".git").exists():
                return _read_head(folder / ".git")
    return None


def _read_head(git: Path) -> dict[str, str] | None:
    if git.is_file():  # a worktree or a submodule: the file says where the rest is
        git = (git.parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return {"commit": head} if _is_commit(head) else None
    name = head.partition(":")[2].strip()
    common = git / "commondir"
    places = [git, (git / common.read_text(encoding="utf-8").strip()).resolve()] if common.is_file() else [git]
    for place in places:
        with suppress(OSError):
            commit = (place / name).read_text(encoding="utf-8").strip()
            if _is_commit(commit):
                return {"commit": commit, "branch": name.removeprefix("refs/heads/")}
    for place in places:
        with suppress(OSError):
            for line in (place / "packed-refs").read_text(encoding="utf-8").splitlines():
                commit, _, packed = line.partition(" ")
                if packed == name and _is_commit(commit):
                    return {"commit": commit, "branch": name.removeprefix("refs/heads/")}
    return None


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


class MemoryGauge:
    """The memory that the process and its device use, measured at most a few times a second."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._found: dict[str, int] = {}
        self._next_read = -math.inf

    def read(self) -> dict[str, int]:
        """Return the last measured bytes: `rss` of the process (Linux), `device_peak` of torch on its device."""
        now = monotonic()
        if now >= self._next_read:
            self._found, self._next_read = self._measure(), now + _SECONDS_BETWEEN_READS
        return self._found

    def _measure(self) -> dict[str, int]:
        found = {}
        if (resident := read_resident_bytes()) is not None:
            found["rss"] = resident
        with suppress(RuntimeError):  # of a device that has failed: the journal still tells how the run ended
            memory = accelerator.read_memory(self._device)
            if memory is not None and memory.peak is not None:
                found["device_peak"] = memory.peak
        return found
