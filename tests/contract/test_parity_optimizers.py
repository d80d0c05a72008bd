"""Optimizers of other libraries: created with the same arguments in both libraries, and trained to the same bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.core.choices import OptimizerNames
from tests.support.optimizer_calls import list_cases
from tests.support.optimizer_packages import NEEDS_CUDA, WARNINGS, require_optimizer, write_stand_ins
from tests.support.optimizer_runs import Classifier, flatten_weights, let_run_on_cpu, list_options, make_rows
from tests.support.parity import run_both
from tests.support.records import Record, assert_same_run
from tests.support.tiny import seeded

pytest.importorskip("transformers")
pytestmark = WARNINGS

ROOT = Path(__file__).parents[2]
NAMES = [name.value for name in OptimizerNames]
CASES = list_cases(NAMES)
# transformers forgets two arguments of Adafactor, without which it refuses a learning rate.
DIFFERENT = {"galore_adafactor_layerwise"}


# ----------------------------------------------------------------------------------------------------- constructors


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """How each library called the stand-ins, for every case in its order."""
    directory = tmp_path_factory.mktemp("stand_ins")
    write_stand_ins(directory)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    recorded = {}
    for library in ("transformers", "ostinato"):
        command = [sys.executable, "-m", "tests.support.optimizer_calls", library, str(directory)]
        result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        recorded[library] = json.loads(result.stdout.splitlines()[-1])
    return recorded


@pytest.mark.parametrize("index", range(len(CASES)), ids=[json.dumps(case) for case in CASES])
def test_classes_are_called_as_by_transformers(calls: dict[str, list[Any]], index: int) -> None:
    case, theirs = calls["transformers"][index]
    assert case == calls["ostinato"][index][0] == json.loads(json.dumps(CASES[index]))
    assert theirs != "ValueError"
    assert (calls["ostinato"][index][1] == theirs) is (case["optim"] not in DIFFERENT)


def test_layerwise_adafactor_gets_the_arguments_that_transformers_forgets(calls: dict[str, list[Any]]) -> None:
    (ours,) = [made for case, made in calls["ostinato"] if case["optim"] in DIFFERENT]
    assert all(given["relative_step"] == given["scale_parameter"] == 0 for _, _, given in ours["calls"])


# ------------------------------------------------------------------------------------------------------------ training


def train_both(name: str, **arguments: Any) -> tuple[Record, Record]:
    def script(api: Any) -> list[torch.Tensor]:
        weights = []

        class Keep(api.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
                weights.append(flatten_weights(model))

        api.fit(
            seeded(Classifier),
            make_rows(),
            trainer={"callbacks": [Keep()]},
            **{
                "optim": name,
                "max_steps": 7,
                "per_device_train_batch_size": 4,
                "weight_decay": 0.01,
                "adam_beta2": 0.99,
                "warmup_steps": 2,
                **list_options(name),
                **arguments,
            },
        )
        return weights

    return run_both(script)


def without_norms(record: Record) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "grad_norm"} for entry in record.log_history]


PLAIN = [name for name in NAMES if not OptimizerNames(name).steps_in_backward and "schedule_free" not in name]
IN_BACKWARD = [name for name in NAMES if OptimizerNames(name).steps_in_backward and name not in DIFFERENT]


@pytest.mark.parametrize("name", PLAIN)
def test_losses_norms_and_weights_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_optimizer(name)
    if name in NEEDS_CUDA:
        let_run_on_cpu(monkeypatch)
    theirs, ours = train_both(name)
    assert_same_run(theirs, ours)
    assert all(map(torch.equal, theirs.result, ours.result)) and len(ours.result) == 7


@pytest.mark.parametrize("name", [name for name in NAMES if "schedule_free" in name])
def test_schedule_free_steps_are_the_same_and_ours_ends_with_the_average(name: str) -> None:
    require_optimizer(name)
    theirs, ours = train_both(name)
    assert all(map(torch.equal, theirs.result, ours.result)) and len(ours.result) == 7
    assert theirs.logged("loss") == ours.logged("loss") and theirs.logged("grad_norm") == ours.logged("grad_norm")
    assert not all(torch.equal(theirs.weights[key], ours.weights[key]) for key in ours.weights)


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_weights_that_change_in_the_backward_pass_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a constant rate: transformers' schedules do not reach layer-wise optimizers."""
    require_optimizer(name)
    if name in NEEDS_CUDA:
        let_run_on_cpu(monkeypatch)
    theirs, ours = train_both(name, lr_scheduler_type="constant", warmup_steps=0)
    assert all(map(torch.equal, theirs.result, ours.result)) and len(ours.result) == 7
    assert without_norms(theirs)[:-1] == without_norms(ours)[:-1]
    assert set(theirs.logged("grad_norm")) == {0.0} and ours.logged("grad_norm") == []


def test_a_schedule_reaches_layerwise_optimizers_here_only() -> None:
    require_optimizer("galore_adamw_layerwise")
    theirs, ours = train_both("galore_adamw_layerwise", warmup_steps=2)
    assert theirs.logged("learning_rate") == ours.logged("learning_rate")
    first = flatten_weights(seeded(Classifier))
    assert torch.equal(ours.result[0], first), "the rate of the first step is 0"
    assert not torch.equal(theirs.result[0], first)


@pytest.mark.parametrize("name", ["adamw_torch_4bit", "adamw_8bit", "galore_adamw", "grokadamw", "stable_adamw"])
def test_accumulation_and_bf16(name: str) -> None:
    require_optimizer(name)
    theirs, ours = train_both(name, gradient_accumulation_steps=2, bf16=True, max_steps=4)
    assert all(map(torch.equal, theirs.result, ours.result)) and len(ours.result) == 4


def test_lomo_steps_with_every_micro_batch() -> None:
    require_optimizer("lomo")
    theirs, ours = train_both("lomo", gradient_accumulation_steps=2, max_steps=4)
    assert all(map(torch.equal, theirs.result, ours.result)) and len(ours.result) == 4
