"""Create optimizers by name with one library, and print how their classes were called: one line of JSON.

    python -m tests.support.optimizer_calls transformers directory

The packages of optimizers are the stand-ins of `optimizer_packages` in the directory.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.apis import Api
from tests.support.optimizer_packages import CLASSES

ARGUMENTS = {
    "learning_rate": 3e-4,
    "weight_decay": 0.1,
    "adam_beta1": 0.8,
    "adam_beta2": 0.97,
    "adam_epsilon": 1e-7,
    "warmup_steps": 5,
}
LOW_RANK = {"optim_target_modules": ["attn", "mlp"]}


class Model(nn.Module):
    """Modules of every kind that optimizers distinguish."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"attn": nn.Linear(4, 4), "mlp": nn.Linear(4, 4, bias=False), "norm": nn.LayerNorm(4)})
            for _ in range(2)
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.head(self.embedding(x)).sum()}


def list_cases(names: list[str]) -> list[dict[str, Any]]:
    """Return the arguments of every optimizer to create: each name alone, and each option that transformers reads."""
    cases: list[dict[str, Any]] = [{"optim": name, **(LOW_RANK if _is_low_rank(name) else {})} for name in names]
    options = {
        "sgd": ["momentum=0.9", "momentum=0.9,nesterov=true", "dampening=0.5"],
        "adagrad": ["lr_decay=0.1", "eps=1e-3"],
        "rmsprop": ["momentum=0.9", "alpha=0.5", "eps=1e-3", "centered=true"],
        "adamw_anyprecision": ["use_kahan_summation=true", "momentum_dtype=bfloat16,variance_dtype=float64"],
        "adamw_torch_4bit": ["bf16_stochastic_round=true"],
        "adamw_torch_8bit": ["bf16_stochastic_round=false"],
        "ademamix": ["beta1=0.7,beta2=0.8,beta3=0.9", "alpha=2.5", "t_alpha=7", "t_beta3=8", "eps=1e-3"],
        "paged_ademamix_8bit": ["beta3=0.9", "t_alpha=7,t_beta3=8"],
        "grokadamw": ["alpha_init=0.5,lamb=1.5", "gamma=0.2,grokking_signal_decay_rate=0.3,gradient_clipping=2"],
        "schedule_free_adamw": ["r=0.5", "weight_lr_power=1"],
        "schedule_free_radam": ["r=0.5,weight_lr_power=1"],
        "schedule_free_sgd": ["r=0.5,weight_lr_power=1"],
        "stable_adamw": ["decouple_lr=true", "max_lr=0.1", "kahan_sum=true"],
        "galore_adamw": ["rank=8,update_proj_gap=3", "scale=0.5,proj_type=reverse_std"],
        "galore_adafactor": ["rank=8"],
        "galore_adamw_layerwise": ["rank=8,scale=0.5"],
        "apollo_adamw": ["rank=8,proj=svd,scale_type=tensor", "update_proj_gap=3,scale=2,proj_type=right"],
        "apollo_adamw_layerwise": ["rank=8,proj=svd"],
    }
    for name, texts in options.items():
        target = LOW_RANK if _is_low_rank(name) else {}
        cases += [{"optim": name, "optim_args": text, **target} for text in texts]
    targets = ["all-linear", "all_linear", r".*\.attn", ["0.attn", "head"], ["layers.0"], [r".*mlp"], "head"]
    return cases + [{"optim": "galore_adamw", "optim_target_modules": target} for target in targets]


def _is_low_rank(name: str) -> bool:
    return name.startswith(("galore", "apollo"))


def describe_calls(api: Api, case: dict[str, Any]) -> Any:
    """Create the optimizer of a case; return the calls of the stand-ins, or the error."""
    classes = _load_classes()
    for cls in classes.values():
        cls.calls.clear()
    manager = importlib.import_module("bitsandbytes.optim").GlobalOptimManager
    manager.overrides.clear()
    model = Model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    names.update({id(module): name for name, module in model.named_modules()})
    try:
        trainer = api.trainer(model, api.args(**ARGUMENTS, **case))
        optimizer = trainer.create_optimizer()
    except ValueError:
        return "ValueError"
    calls = [
        [path, sorted((_describe_group(group, names) for group in groups), key=str), _describe(given)]
        for path, cls in classes.items()
        for groups, given in cls.calls
    ]
    if not calls:
        calls = [[type(optimizer).__name__, [_describe_group(group, names) for group in optimizer.param_groups], {}]]
    overrides = [[names[id(module)], parameter, options] for module, parameter, options in manager.overrides]
    return {"calls": sorted(calls, key=str), "overrides": overrides}


def _load_classes() -> dict[str, Any]:
    paths = (path.rpartition(".") for path in CLASSES)
    return {f"{module}.{name}": getattr(importlib.import_module(module), name) for module, _, name in paths}


def _describe_group(group: dict[str, Any], names: dict[int, str]) -> Any:
    return {
        **_describe({key: value for key, value in group.items() if key != "params"}),
        "params": [names.get(id(parameter), "another") for parameter in group["params"]],
    }


def _describe(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as JSON; a truth value may be a number."""
    return {key: int(value) if isinstance(value, bool) else _plain(value) for key, value in sorted(options.items())}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def _forget_what_is_installed() -> None:
    """Let transformers look again for optional packages."""
    known = vars(importlib.import_module("transformers.utils.import_utils"))
    for function in (value for name, value in known.items() if name.endswith("_available")):
        getattr(function, "cache_clear", lambda: None)()


def main() -> None:
    library, stand_ins = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        api = Api(library, Path(directory))
        sys.path.insert(0, stand_ins)  # not before: transformers would look into them while it is imported
        roots = {path.partition(".")[0] for path in CLASSES}
        for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
            del sys.modules[name]  # it is installed, and was imported on the way
        if not api.is_ours:
            _forget_what_is_installed()
        names = [name.value for name in importlib.import_module("ostinato.core.choices").OptimizerNames]
        print(json.dumps([[case, describe_calls(api, case)] for case in list_cases(names)]))


if __name__ == "__main__":
    main()
