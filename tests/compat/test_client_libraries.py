"""Libraries that make subclasses of transformers' Trainer, unmodified: on ours they train, and train the same.

Each script in `scripts/` knows transformers only. It runs once as it is and once under `ostinato exec`, each time in a
process of its own; what it reports of the two runs must be equal bit for bit. A library that is not installed is
skipped: `make compat` installs them all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.support.long_tests import long_only

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

# Each script, and the library it needs.
SCRIPTS = {
    "peft_lora": "peft",
    "trl_sft": "trl",
    "trl_sft_lora": "trl",
    "trl_sft_packing": "trl",
    "trl_adapters": "trl",
    "trl_dpo": "trl",
    "trl_reward": "trl",
    "trl_kto": "trl",
    "trl_grpo": "trl",
    "trl_rloo": "trl",
    "trl_orpo": "trl",
    "st_bi_encoder": "sentence_transformers",
    "st_cross_encoder": "sentence_transformers",
    "st_sparse_encoder": "sentence_transformers",
    "st_evaluator": "sentence_transformers",
    "st_several_sets": "sentence_transformers",
    "setfit_model": "setfit",
    "gliner_entities": "gliner",
    "flagembedding_embedder": "FlagEmbedding",
    "flagembedding_reranker": "FlagEmbedding",
    "chronos_fit": "chronos",
    "tsfm_mixer": "tsfm_public",
    "ray_train": "ray",
    "pylate_colbert": "pylate",
    "llamafactory_sft": "llamafactory",
    "swift_sft": "swift",
    "axolotl_sft": "axolotl",
}
# Installed where the other tests run: one starts a cluster, and the other is held to parity in tests/contract as well.
LENGTHY = {"ray_train": long_only, "peft_lora": long_only}
# The environments of other libraries have older versions of these two, as libraries; their scripts are not for those.
OLDEST = {"trl": (1, 16), "sentence_transformers": (6, 2)}
# Their loss is no measure of what is learned: it is that of several runs, of several losses, or of generated answers.
WITHOUT_A_CURVE = {"trl_grpo", "trl_rloo", "trl_adapters", "st_several_sets"}

OF_THE_CLOCK = ("runtime", "per_sec", "step_time")
OF_OTHER_STEPS = ("train_loss",)  # of a resumed run: our mean is over all its steps, not over those since then
LOSSES = ("loss", "embedding_loss")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=LENGTHY.get(name, ())) for name in SCRIPTS])
def test_a_client_library(name: str, tmp_path: Path) -> None:
    if not is_installed(SCRIPTS[name]):
        pytest.skip(f"{SCRIPTS[name]} is not installed: make compat")
    theirs = run(name, tmp_path / "theirs")
    ours = run(name, tmp_path / "ours", "-m", "ostinato", "exec", "--set", "isolate_rng=false")

    assert "transformers.trainer.Trainer" in theirs["classes"]
    assert theirs["loops"] == ["transformers.trainer"]
    assert "ostinato.trainer.Trainer" in ours["classes"]
    assert "ostinato.arguments.training_args.TrainingArguments" in ours["arguments"]
    assert not [one for one in ours["classes"] + ours["arguments"] if one.startswith("transformers.")]
    assert ours["loops"] == ["ostinato.engine.loop"]
    assert 20 <= ours["steps"] == theirs["steps"] <= 50
    assert [list(entry) for entry in ours["history"]] == [list(entry) for entry in theirs["history"]]
    assert numbers(ours) == numbers(theirs)
    if name in WITHOUT_A_CURVE:
        return
    losses = [entry[key] for entry in ours["history"] for key in LOSSES if key in entry]
    assert sum(losses[-5:]) < 0.995 * sum(losses[:5])


def is_installed(library: str) -> bool:
    """Return whether a library is there, in a version that the scripts are for."""
    if importlib.util.find_spec(library) is None:
        return False
    return library not in OLDEST or tuple(map(int, version(library).split(".")[:2])) >= OLDEST[library]


def run(name: str, directory: Path, *how: str) -> dict[str, Any]:
    """What a script reports of its run."""
    directory.mkdir()
    ended = subprocess.run(
        [sys.executable, *how, str(HERE / "scripts" / f"{name}.py"), str(directory)],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONHASHSEED": "0",  # GLiNER numbers the names of entities in the order of a set
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads((directory / "report.json").read_text(encoding="utf-8"))


def numbers(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The history without what the clock tells."""
    left_out = OF_THE_CLOCK + OF_OTHER_STEPS if report["resumed"] else OF_THE_CLOCK
    return [
        {key: value for key, value in entry.items() if not any(part in key for part in left_out)}
        for entry in report["history"]
    ]
