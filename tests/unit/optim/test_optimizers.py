"""Names of optimizers to classes and arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import OptimizerSettings
from ostinato.core.choices import OptimizerNames
from ostinato.core.errors import ConfigError, MissingPackageError
from ostinato.core.notices import forget_notices
from ostinato.optim.adafactor import Adafactor
from ostinato.optim.optimizers import DECLARATIONS, choose_optimizer

MADE = {"adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"}


def settings_for(name: str, options: dict[str, Any] | None = None, **changes: Any) -> OptimizerSettings:
    numbers: dict[str, Any] = {
        "learning_rate": 3e-4,
        "weight_decay": 0.1,
        "betas": (0.8, 0.97),
        "epsilon": 1e-7,
        "target_modules": None,
    }
    return OptimizerSettings(name=OptimizerNames(name), options=options or {}, **{**numbers, **changes})


@pytest.mark.parametrize("name", sorted(MADE))
def test_every_made_optimizer_takes_a_step(name: str) -> None:
    cls, kwargs = choose_optimizer(settings_for(name))
    weight = nn.Parameter(torch.ones(3, 2))
    weight.grad = torch.ones(3, 2)
    cls([weight], **kwargs).step()
    assert (weight < 1.0).all()


def test_every_name_is_declared() -> None:
    assert set(DECLARATIONS) == set(OptimizerNames)
    assert len(DECLARATIONS) == 41


@pytest.mark.parametrize("name", sorted(set(OptimizerNames) - {OptimizerNames(name) for name in MADE}))
def test_a_package_that_is_not_installed_is_named(name: OptimizerNames, monkeypatch: pytest.MonkeyPatch) -> None:
    package = DECLARATIONS[name].package
    assert package is not None
    for module in {package.name, *(name for name in sys.modules if name.startswith(f"{package.name}."))}:
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(MissingPackageError) as error:
        choose_optimizer(settings_for(name.value), nn.Linear(2, 2))
    assert error.value.what == f"optim={name.value!r} needs the package {package.name}"
    assert package.name in error.value.why
    assert error.value.fix == package.how and ("pip install" in package.how or "https://" in package.how)
    assert isinstance(error.value, ImportError) and isinstance(error.value, ValueError)


def test_an_optimizer_made_from_the_model_needs_one(stand_ins: None) -> None:
    for name in ("lomo", "galore_adamw"):
        with pytest.raises(ConfigError, match="without a model"):
            choose_optimizer(settings_for(name, target_modules="all-linear"))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("adamw_torch_4bit", {"block_size": "128"}, {"block_size": 128, "bf16_stochastic_round": False}),
        ("adamw_anyprecision", {"momentum_dtype": "float16"}, {"momentum_dtype": torch.float16}),
        ("ademamix", {"beta1": "0.5", "t_alpha": "7"}, {"betas": (0.5, 0.97, 0.9999), "t_alpha": 7}),
        ("ademamix", {"betas": "(0.5,0.6,0.7)"}, {"betas": (0.5, 0.6, 0.7)}),
        ("rmsprop_bnb", {"alpha": "0.5", "centered": "true"}, {"alpha": 0.5, "centered": True, "optim_bits": 32}),
        ("adamw_8bit", {"min_8bit_size": "16384"}, {"min_8bit_size": 16384}),
        ("stable_adamw", {"decouple_lr": "false", "kahan_sum": "none"}, {"decouple_lr": False, "kahan_sum": None}),
        ("lomo", {"clip_grad_value": "1"}, {"clip_grad_value": 1}),
        ("galore_adamw", {"betas": "(0.8,0.9)"}, {"betas": (0.8, 0.9)}),
    ],
)
def test_options_of_other_libraries_have_their_types(
    stand_ins: None, name: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Transformers passes some of these on as text, takes every text for true, or drops them."""
    _, kwargs = choose_optimizer(settings_for(name, options, target_modules="all-linear"), nn.Linear(2, 2))
    assert {key: kwargs[key] for key in expected} == expected
    assert {key: type(kwargs[key]) for key in expected} == {key: type(value) for key, value in expected.items()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adamw_anyprecision", {"momentum_dtype": "bogus"}),
        ("adamw_anyprecision", {"momentum_dtype": "nn"}),
        ("galore_adamw", {"rank": "0.5"}),
        ("galore_adamw", {"scale": "large"}),
        ("ademamix", {"t_alpha": "1.5"}),
        ("ademamix", {"beta4": "0.9"}),
        ("schedule_free_adamw", {"r": "true"}),
    ],
)
def test_options_of_other_libraries_are_checked(stand_ins: None, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        choose_optimizer(settings_for(name, options, target_modules="all-linear"), nn.Linear(2, 2))


@pytest.mark.parametrize("name", ["galore_adamw", "apollo_adamw", "lomo"])
def test_a_weight_decay_without_effect_is_mentioned(
    stand_ins: None, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_notices()
    choose_optimizer(settings_for(name, target_modules="all-linear"), nn.Linear(2, 2))
    assert f"weight_decay=0.1 is not used: {name}" in capsys.readouterr().err
    applied = settings_for(name, {"weight_decay": "0.1"}, target_modules="all-linear")
    forget_notices()
    assert choose_optimizer(applied, nn.Linear(2, 2))[1]["weight_decay"] == 0.1
    assert "weight_decay" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sgd", {"momentum": "0.9", "nesterov": "true"}, {"momentum": 0.9, "nesterov": True}),
        ("sgd", {"foreach": "None", "maximize": "False"}, {"foreach": None, "maximize": False}),
        ("adamw_torch", {"betas": "(0.1, 0.2)", "eps": "1e-3"}, {"betas": (0.1, 0.2), "eps": 1e-3}),
        ("adamw_torch", {"betas": "[0.1,0.2]", "fused": "true"}, {"betas": (0.1, 0.2), "fused": True}),
        ("adamw_torch", {"amsgrad": True}, {"amsgrad": True}),
        ("adagrad", {"lr_decay": "1"}, {"lr_decay": 1.0}),
        ("rmsprop", {"centered": "TRUE", "alpha": ".5"}, {"centered": True, "alpha": 0.5}),
        ("adafactor", {"beta1": "0.9", "clip_threshold": "2"}, {"beta1": 0.9, "clip_threshold": 2.0}),
        ("adafactor", {"scale_parameter": "true"}, {"scale_parameter": True, "relative_step": False, "lr": 3e-4}),
        ("sgd", {"lr": "3e-4", "weight_decay": "0.1"}, {"lr": 3e-4, "weight_decay": 0.1}),
    ],
)
def test_options_are_honoured_with_their_types(name: str, options: dict[str, Any], expected: dict[str, Any]) -> None:
    cls, kwargs = choose_optimizer(settings_for(name, options))
    assert {key: kwargs[key] for key in expected} == expected
    assert {key: type(kwargs[key]) for key in expected} == {key: type(value) for key, value in expected.items()}
    group = cls([nn.Parameter(torch.ones(1))], **kwargs).param_groups[0]
    assert {key: group[key] for key in expected} == expected


def test_an_unknown_option_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError) as error:
        choose_optimizer(settings_for("sgd", {"momentun": "0.9"}))
    assert "momentun" in error.value.what
    assert "momentum, dampening, nesterov" in error.value.why


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        ("sgd", "momentum", "true"),
        ("sgd", "momentum", "high"),
        ("sgd", "nesterov", "0.5"),
        ("sgd", "foreach", "perhaps"),
        ("adamw_torch", "betas", "0.9"),
        ("adamw_torch", "betas", "(0.9)"),
        ("adamw_torch", "betas", "(0.9,x)"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=option):
        choose_optimizer(settings_for(name, {option: text}))


@pytest.mark.parametrize(("option", "argument"), [("lr", "learning_rate"), ("weight_decay", "weight_decay")])
def test_a_second_value_for_a_training_argument_is_refused(option: str, argument: str) -> None:
    with pytest.raises(ConfigError, match=f"set {argument}=0.5"):
        choose_optimizer(settings_for("sgd", {option: "0.5"}))


def test_adafactor_with_a_relative_step_has_no_rate_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    cls, kwargs = choose_optimizer(settings_for("adafactor", {"relative_step": "true"}))
    assert cls is Adafactor and kwargs["lr"] is None
    cls([nn.Parameter(torch.ones(1))], **kwargs)
    assert "learning_rate is not used" in capsys.readouterr().err


def test_target_modules_that_nobody_reads_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    choose_optimizer(settings_for("sgd", target_modules=["attn"]))
    assert "optim_target_modules is not used" in capsys.readouterr().err


HONOURED_BY_BOTH = [
    *((name, "") for name in sorted(MADE)),
    *(("sgd", option) for option in ("momentum=0.9", "nesterov=True", "nesterov=false", "dampening=1")),
    *(("adagrad", option) for option in ("lr_decay=0.1", "eps=1e-3", "weight_decay=0.1")),
    *(
        ("rmsprop", option)
        for option in ("momentum=0.9", "alpha=0.5", "eps=1e-3", "centered=true", "weight_decay=0.1")
    ),
]


@pytest.mark.parametrize(("name", "options"), HONOURED_BY_BOTH)
def test_same_class_and_arguments_as_transformers(name: str, options: str, tmp_path: Path, peer: Any) -> None:
    """For the options transformers honours; those it drops without a word are ours to honour or to refuse."""
    args = peer.TrainingArguments(
        str(tmp_path),
        optim=name,
        optim_args=options or None,
        learning_rate=3e-4,
        adam_beta1=0.8,
        adam_beta2=0.97,
        adam_epsilon=1e-7,
        weight_decay=0.1,
        use_cpu=True,
        report_to=[],
    )
    expected_cls, expected = peer.Trainer.get_optimizer_cls_and_kwargs(args)
    cls, kwargs = choose_optimizer(settings_for(name, dict([options.split("=")]) if options else {}))
    assert cls.__name__ == expected_cls.__name__
    assert kwargs == expected
    assert cls is expected_cls or cls is Adafactor
