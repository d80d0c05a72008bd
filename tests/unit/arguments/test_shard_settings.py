"""The spellings of sharding: ours, both of transformers, accelerate's object and its launcher's variables."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from ostinato import TrainingArguments
from ostinato.arguments.shard_settings import ShardSettings
from ostinato.core.errors import ConfigError


def read(**arguments: Any) -> ShardSettings | None:
    return ShardSettings.of(TrainingArguments("out", use_cpu=True, report_to=[], **arguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, None),
        ({"fsdp": ""}, None),
        ({"fsdp": False}, None),
        ({"fsdp": "no_shard"}, None),
        ({"shard": "full"}, ShardSettings()),
        ({"shard": "hybrid"}, ShardSettings(hybrid=True)),
        ({"fsdp": True}, ShardSettings()),
        ({"fsdp": "true"}, ShardSettings()),
        ({"fsdp": "full_shard auto_wrap"}, ShardSettings()),
        ({"fsdp": ["full_shard", "offload"]}, ShardSettings(offloads=True)),
        ({"fsdp": "shard_grad_op"}, ShardSettings(reshards=False)),
        ({"fsdp": "hybrid_shard_zero2"}, ShardSettings(hybrid=True, reshards=False)),
        ({"parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 4}}, ShardSettings(shard_size=4)),
    ],
    ids=str,
)
def test_requests(arguments: dict[str, Any], expected: ShardSettings | None) -> None:
    assert read(**arguments) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"transformer_layer_cls_to_wrap": "A,B"}, ShardSettings(classes=("A", "B"))),
        ({"fsdp_transformer_layer_cls_to_wrap": ["A"]}, ShardSettings(classes=("A",))),
        ({"min_num_params": 100}, ShardSettings(min_parameters=100)),
        ({"min_num_params": 100, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}, ShardSettings()),
        ({"version": 1, "sharding_strategy": "SHARD_GRAD_OP"}, ShardSettings(reshards=False)),
        ({"reshard_after_forward": "false"}, ShardSettings(reshards=False)),
        ({"cpu_offload": True}, ShardSettings(offloads=True)),
        (
            {"mixed_precision_policy": "bf16"},
            ShardSettings(parameter_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        ),
        (
            {"mixed_precision_policy": {"param_dtype": "bfloat16", "output_dtype": "fp32"}},
            ShardSettings(parameter_dtype=torch.bfloat16, output_dtype=torch.float32),
        ),
    ],
    ids=str,
)
def test_details(config: dict[str, Any], expected: ShardSettings, tmp_path) -> None:
    path = tmp_path / "fsdp.json"
    path.write_text(json.dumps(config))
    assert read(fsdp=True, fsdp_config=config) == expected
    assert read(fsdp=True, fsdp_config=json.dumps(config)) == expected
    assert read(fsdp=True, fsdp_config=str(path)) == expected


def test_the_launcher_requests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_TRANSFORMER_CLS_TO_WRAP", "Layer")
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "false")
    assert read() == ShardSettings(classes=("Layer",), offloads=True, reshards=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fsdp": "full_sard"}, "unknown words: full_sard"),
        ({"fsdp": True, "fsdp_config": "nowhere.json"}, "could not be read"),
        ({"fsdp": True, "fsdp_config": {"reshard_after_forward": "perhaps"}}, "neither true nor false"),
        ({"fsdp": True, "fsdp_config": {"mixed_precision_policy": "fp7"}}, "unknown type 'fp7'"),
        ({"fsdp": True, "fsdp_config": {"xla": True}}, "xla is not supported"),
        ({"parallelism_config": {"sp_size": 2}}, "sp_size=2 is not supported"),
        ({"shard": "half"}, "shard"),
    ],
    ids=str,
)
def test_mistakes_are_found_with_the_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**arguments)


def test_an_unknown_setting_is_reported(capfd: pytest.CaptureFixture[str], caplog) -> None:
    read(fsdp=True, fsdp_config={"min_num_parms": 3})
    assert "'min_num_parms' has no effect: it is not known (min_num_params?)" in caplog.text + capfd.readouterr().err
