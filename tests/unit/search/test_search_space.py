"""Every form of a search space."""

from __future__ import annotations

import contextlib
import json
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.core.errors import ConfigError
from ostinato.search.parameter import Parameter
from ostinato.search.ray_domains import build_domains
from ostinato.search.search_space import list_parameters, read_space
from ostinato.search.short_names import TrialShortNamer

ARGS = SimpleNamespace(learning_rate=5e-5, weight_decay=0.0, num_train_epochs=3.0, seed=42, optim="adamw_torch")
RATE = Parameter("learning_rate", "float", 1e-5, 1e-1, log=True)


def read(given: Any) -> tuple[Parameter, ...]:
    return list_parameters(read_space(given, ARGS))


def test_forms_of_one_space(tmp_path: Path) -> None:
    plain = {"learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}}
    (tmp_path / "space.json").write_text(json.dumps(plain))
    assert read(plain) == (RATE,)
    assert read(str(tmp_path / "space.json")) == (RATE,)
    assert read(lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True)}) == (RATE,)
    sweep = {
        "method": "random",
        "parameters": {"learning_rate": {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1}},
    }
    assert read(sweep) == (RATE,)
    assert read(lambda trial: sweep) == (RATE,)


def test_yaml_reads_numbers_without_a_dot_as_text(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "space.yaml").write_text(
        "learning_rate: {low: 1e-5, high: 1e-1, log: true}\noptim: [sgd, adafactor]\n"
    )
    assert read(tmp_path / "space.yaml") == (RATE, Parameter("optim", "choice", choices=("sgd", "adafactor")))


@pytest.fixture(scope="module", autouse=True)
def variable_of_rays() -> None:
    """Import Ray before a test does, as that changes environment variables."""
    with contextlib.suppress(ImportError):
        import_module("ray.tune")


def test_forms_of_ray() -> None:
    tune = pytest.importorskip("ray.tune")
    domains = {
        "learning_rate": tune.loguniform(1e-5, 1e-1),
        "weight_decay": tune.quniform(0.0, 0.1, 0.05),
        "seed": tune.randint(1, 5),
        "optim": tune.choice(["sgd", "adafactor"]),
    }
    expected = (
        RATE,
        Parameter("weight_decay", "float", 0.0, 0.1, step=0.05),
        Parameter("seed", "int", 1, 4),
        Parameter("optim", "choice", choices=("sgd", "adafactor")),
    )
    assert read(domains) == expected
    assert read(lambda trial: domains) == expected
    with pytest.raises(ConfigError, match="Ray's alone"):
        read({"learning_rate": tune.randn(0, 1)})
    (kept,) = list_parameters(read_space({"learning_rate": tune.randn(0, 1)}, ARGS, takes_rays=True))
    assert kept.describe() == {"name": "learning_rate", "kind": "other", "choices": ["Float Normal"]}
    assert read(build_domains(expected)) == expected


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("weight_decay", {"low": 0, "high": 1}, "float"),  # of an argument that is a float
        ("num_train_epochs", {"low": 1, "high": 3}, "int"),
        ("seed", {"low": 1, "high": 3}, "int"),
        ("hidden", {"low": 1, "high": 3}, "int"),
        ("hidden", {"low": 1, "high": 3, "type": "float"}, "float"),
        ("hidden", {"low": 1.0, "high": 3}, "float"),
    ],
)
def test_two_whole_ends(name: str, given: Any, kind: str) -> None:
    assert read({name: given})[0].kind == kind


def test_a_space_that_depends_on_the_trial_is_optunas_alone() -> None:
    def space(trial: Any) -> dict[str, Any]:
        drawn = {"seed": trial.suggest_int("seed", 1, 5)}
        return {**drawn, "weight_decay": trial.suggest_float("weight_decay", 0, 1)} if drawn["seed"] > 2 else drawn

    with pytest.raises(ConfigError, match="other parameters"):
        read(space)


def test_short_names() -> None:
    class Namer(TrialShortNamer):
        PREFIX = "run"
        DEFAULTS = {"learning_rate": 1e-4, "learning_ratio": 1, "use_x": False, "lora_r": 1, "mode": "a"}

    name = Namer.shortname({"learning_rate": 3e-5, "use_x": True, "lora_r": 5, "mode": "fast", "learning_ratio": 1})
    assert name == "run_lr3e-05_ux1_lor#5_m-fast"
    assert Namer.parse_repr(name) == {
        "learning_rate": 3e-5,
        "learning_ratio": 1,
        "use_x": 1.0,
        "lora_r": 5.0,
        "mode": "fast",
    }
    with pytest.raises(Exception, match="default value for the param name other"):
        Namer.shortname({"other": 1})
