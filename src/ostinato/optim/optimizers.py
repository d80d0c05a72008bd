"""Optimizers by name: one declaration each, from which the class and its arguments follow.

A package is imported when its optimizer is used. The arguments are those that transformers passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..arguments.settings import OptimizerSettings
from ..core.choices import OptimizerNames
from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.package_import import Package, import_from
from . import adafactor, low_rank
from .layerwise import LayerwiseOptimizer
from .optim_args import OptionTypes, parse_options, read_option_types

Arguments = dict[str, Any]


def _take_nothing(settings: OptimizerSettings) -> Arguments:
    return {}


def _take_adam(settings: OptimizerSettings) -> Arguments:
    return {"betas": settings.betas, "eps": settings.epsilon}


def _take_adam_and_decay(settings: OptimizerSettings) -> Arguments:
    return {**_take_adam(settings), "weight_decay": settings.weight_decay}


def _take_betas(settings: OptimizerSettings) -> Arguments:
    return {"betas": settings.betas}


def _take_ademamix(settings: OptimizerSettings) -> Arguments:
    return {"betas": (*settings.betas, 0.9999), "alpha": 5.0, "eps": settings.epsilon}


def _take_schedule_free_adam(settings: OptimizerSettings) -> Arguments:
    return {**_take_adam_and_decay(settings), "warmup_steps": settings.warmup_steps}


def _take_schedule_free_sgd(settings: OptimizerSettings) -> Arguments:
    return {"weight_decay": settings.weight_decay, "warmup_steps": settings.warmup_steps}


@dataclass(frozen=True)
class Declaration:
    """One optimizer: where it comes from, and what it is created with besides the learning rate."""

    path: str  # of the class
    package: Package | None = None  # None: torch's, or our own
    take: Callable[[OptimizerSettings], Arguments] = _take_nothing  # the training arguments that it is given
    fixed: Mapping[str, Any] = field(default_factory=dict)  # further arguments, unless optim_args has them
    options: OptionTypes = field(default_factory=dict)  # what optim_args may hold besides the constructor's arguments
    low_rank: Mapping[str, Any] | None = None  # options of the projected parameters, for an optimizer that projects
    takes_model: bool = False  # in place of parameters
    decays: bool = True  # weight_decay of the training arguments applies


_XLA = Package("torch_xla", "pip install torch_xla")
_NPU = Package("torch_npu", "pip install torch-npu")
_DISTX = Package("torchdistx", "build it from https://github.com/pytorch/torchdistx")
_TORCHAO = Package("torchao", "pip install torchao")
_BNB = Package("bitsandbytes", "pip install bitsandbytes")
_GALORE = Package("galore_torch", "pip install galore-torch")
_APOLLO = Package("apollo_torch", "pip install apollo-torch")
_LOMO = Package("lomo_optim", "pip install lomo-optim")
_GROK = Package("grokadamw", "pip install grokadamw")
_SCHEDULE_FREE = Package("schedulefree", "pip install schedulefree")
_OPTIMI = Package("optimi", "pip install torch-optimi")

_GIVEN_RATE = {"scale_parameter": False, "relative_step": False}
_BLOCKS = {"block_size": 256, "bf16_stochastic_round": False}
_AVERAGING = {"weight_lr_power": 2.0, "r": 0.0}
_FORMATS = {
    "use_kahan_summation": False,
    "momentum_dtype": torch.float32,
    "variance_dtype": torch.float32,
    "compensation_buffer_dtype": torch.bfloat16,
}
_GROKKING = {
    "alpha_init": 0.98,
    "lamb": 2.0,
    "gamma": 0.1,
    "grokking_signal_decay_rate": 0.1,
    "gradient_clipping": 1.0,
}


def _of_bitsandbytes(cls: str, take: Callable[[OptimizerSettings], Arguments], **fixed: Any) -> Declaration:
    return Declaration(f"bitsandbytes.optim.{cls}", _BNB, take, fixed)


def _of_galore(cls: str, **fixed: Any) -> Declaration:
    return Declaration(f"galore_torch.{cls}", _GALORE, fixed=fixed, low_rank=low_rank.GALORE, decays=False)


_bnb_adamw = partial(_of_bitsandbytes, "AdamW", _take_adam)
_bnb_lion = partial(_of_bitsandbytes, "Lion", _take_betas)
_bnb_rmsprop = partial(_of_bitsandbytes, "RMSprop", _take_nothing)
_ademamix = partial(
    Declaration,
    "bitsandbytes.optim.AdEMAMix",
    _BNB,
    _take_ademamix,
    options={"beta1": float, "beta2": float, "beta3": float, "t_alpha": int, "t_beta3": int},
)
_GALORE_ADAMW = _of_galore("GaLoreAdamW")
_GALORE_ADAMW_8BIT = _of_galore("GaLoreAdamW8bit")
_GALORE_ADAFACTOR = _of_galore("GaLoreAdafactor", **_GIVEN_RATE)
_APOLLO_ADAMW = Declaration("apollo_torch.APOLLOAdamW", _APOLLO, _take_adam, low_rank=low_rank.APOLLO, decays=False)
_TORCH_ADAMW = "torch.optim.AdamW"

DECLARATIONS: Mapping[OptimizerNames, Declaration] = {
    OptimizerNames.ADAMW_TORCH: Declaration(_TORCH_ADAMW, take=_take_adam),
    OptimizerNames.ADAMW_TORCH_FUSED: Declaration(_TORCH_ADAMW, take=_take_adam, fixed={"fused": True}),
    OptimizerNames.ADAMW_TORCH_XLA: Declaration("torch_xla.amp.syncfree.AdamW", _XLA, _take_adam),
    OptimizerNames.ADAMW_TORCH_NPU_FUSED: Declaration("torch_npu.optim.NpuFusedAdamW", _NPU, _take_adam),
    OptimizerNames.ADAFACTOR: Declaration(f"{adafactor.__name__}.Adafactor", fixed=_GIVEN_RATE),
    OptimizerNames.ADAMW_ANYPRECISION: Declaration(
        "torchdistx.optimizers.AnyPrecisionAdamW", _DISTX, _take_adam, _FORMATS
    ),
    OptimizerNames.ADAMW_TORCH_4BIT: Declaration("torchao.optim.AdamW4bit", _TORCHAO, _take_adam, _BLOCKS),
    OptimizerNames.ADAMW_TORCH_8BIT: Declaration("torchao.optim.AdamW8bit", _TORCHAO, _take_adam, _BLOCKS),
    OptimizerNames.ADEMAMIX: _ademamix(fixed={"optim_bits": 32, "is_paged": False}),
    OptimizerNames.SGD: Declaration("torch.optim.SGD"),
    OptimizerNames.ADAGRAD: Declaration("torch.optim.Adagrad"),
    OptimizerNames.ADAMW_BNB: _bnb_adamw(optim_bits=8, is_paged=False),
    OptimizerNames.ADAMW_8BIT: _bnb_adamw(optim_bits=8, is_paged=False),
    OptimizerNames.ADEMAMIX_8BIT: _ademamix(fixed={"optim_bits": 8, "is_paged": False}),
    OptimizerNames.LION_8BIT: _bnb_lion(optim_bits=8, is_paged=False),
    OptimizerNames.LION: _bnb_lion(optim_bits=32, is_paged=False),
    OptimizerNames.PAGED_ADAMW: _bnb_adamw(optim_bits=32, is_paged=True),
    OptimizerNames.PAGED_ADAMW_8BIT: _bnb_adamw(optim_bits=8, is_paged=True),
    OptimizerNames.PAGED_ADEMAMIX: _ademamix(fixed={"optim_bits": 32, "is_paged": True}),
    OptimizerNames.PAGED_ADEMAMIX_8BIT: _ademamix(fixed={"optim_bits": 8, "is_paged": True}),
    OptimizerNames.PAGED_LION: _bnb_lion(optim_bits=32, is_paged=True),
    OptimizerNames.PAGED_LION_8BIT: _bnb_lion(optim_bits=8, is_paged=True),
    OptimizerNames.RMSPROP: Declaration("torch.optim.RMSprop"),
    OptimizerNames.RMSPROP_BNB: _bnb_rmsprop(optim_bits=32),
    OptimizerNames.RMSPROP_8BIT: _bnb_rmsprop(optim_bits=8),
    OptimizerNames.RMSPROP_32BIT: _bnb_rmsprop(optim_bits=32),
    OptimizerNames.GALORE_ADAMW: _GALORE_ADAMW,
    OptimizerNames.GALORE_ADAMW_8BIT: _GALORE_ADAMW_8BIT,
    OptimizerNames.GALORE_ADAFACTOR: _GALORE_ADAFACTOR,
    OptimizerNames.GALORE_ADAMW_LAYERWISE: _GALORE_ADAMW,
    OptimizerNames.GALORE_ADAMW_8BIT_LAYERWISE: _GALORE_ADAMW_8BIT,
    OptimizerNames.GALORE_ADAFACTOR_LAYERWISE: _GALORE_ADAFACTOR,
    OptimizerNames.LOMO: Declaration("lomo_optim.Lomo", _LOMO, takes_model=True, decays=False),
    OptimizerNames.ADALOMO: Declaration("lomo_optim.AdaLomo", _LOMO, takes_model=True, decays=False),
    OptimizerNames.GROKADAMW: Declaration("grokadamw.GrokAdamW", _GROK, fixed=_GROKKING),
    OptimizerNames.SCHEDULE_FREE_RADAM: Declaration(
        "schedulefree.RAdamScheduleFree", _SCHEDULE_FREE, _take_adam_and_decay, _AVERAGING
    ),
    OptimizerNames.SCHEDULE_FREE_ADAMW: Declaration(
        "schedulefree.AdamWScheduleFree", _SCHEDULE_FREE, _take_schedule_free_adam, _AVERAGING
    ),
    OptimizerNames.SCHEDULE_FREE_SGD: Declaration(
        "schedulefree.SGDScheduleFree", _SCHEDULE_FREE, _take_schedule_free_sgd, _AVERAGING
    ),
    OptimizerNames.APOLLO_ADAMW: _APOLLO_ADAMW,
    OptimizerNames.APOLLO_ADAMW_LAYERWISE: _APOLLO_ADAMW,
    OptimizerNames.STABLE_ADAMW: Declaration(
        "optimi.StableAdamW",
        _OPTIMI,
        _take_adam_and_decay,
        fixed={"decouple_lr": False, "max_lr": None, "kahan_sum": None},
    ),
}


def choose_optimizer(settings: OptimizerSettings, model: nn.Module | None = None) -> tuple[type[Optimizer], Arguments]:
    """Return the class of the requested optimizer, and its arguments.

    Weight decay is absent where it belongs to the parameter groups. Low-rank optimizers and LOMO are created from the
    model: their arguments hold parameter groups, or the model.

    Raises:
        MissingPackageError: The optimizer's package is not installed.
        ConfigError: An option is not valid, or the model is missing.

    >>> settings = OptimizerSettings(OptimizerNames.SGD, 0.1, 0.0, (0.9, 0.999), 1e-8, {"momentum": "0.9"}, None)
    >>> choose_optimizer(settings)
    (<class 'torch.optim.sgd.SGD'>, {'lr': 0.1, 'momentum': 0.9})
    """
    declared = DECLARATIONS[settings.name]
    cls = import_from(declared.path, declared.package, needed_by=f"optim={settings.name.value!r}")
    _note_unused(settings, declared)
    types = {**read_option_types(cls), **declared.options, **_types_of(declared.low_rank or {})}
    options = parse_options(settings, types, cls.__name__)
    if declared.low_rank is not None:
        return _project(settings, declared, cls, options, _require(model, settings.name))
    kwargs = {"lr": settings.learning_rate, **declared.take(settings), **declared.fixed}
    kwargs = _merge_betas({**kwargs, **options})
    if kwargs.get("relative_step"):
        note_once("learning_rate is not used: with relative_step=True, Adafactor derives its rate from the step")
        kwargs["lr"] = None
    if declared.takes_model:
        kwargs["model"] = _require(model, settings.name)
    return cls, kwargs


def _project(
    settings: OptimizerSettings, declared: Declaration, cls: type[Optimizer], options: Arguments, model: nn.Module
) -> tuple[type[Optimizer], Arguments]:
    """Return the class and the arguments of a low-rank optimizer, whose groups name the projected parameters."""
    projection = {**(declared.low_rank or {}), **declared.take(settings)}
    projection.update((name, options.pop(name)) for name in declared.low_rank or {} if name in options)
    groups = low_rank.split_parameters(model, settings, projection)
    kwargs = {"lr": settings.learning_rate, **declared.fixed, **options}
    if settings.name.is_layerwise:
        return LayerwiseOptimizer, {"params": groups, "cls": cls, **kwargs}
    return cls, {"params": groups, **kwargs}


def is_factory(kind: Any) -> bool:
    """Return whether a class is no optimizer, and its objects make one of a model and arguments.

    >>> class Muon:
    ...     def __call__(self, model, **arguments): ...
    >>> is_factory(Muon), is_factory(torch.optim.SGD)
    (True, False)
    """
    if not isinstance(kind, type) or issubclass(kind, Optimizer):
        return False
    return any("__call__" in vars(base) for base in kind.__mro__)


def _types_of(options: Mapping[str, Any]) -> OptionTypes:
    return {name: type(value) for name, value in options.items()}


def _merge_betas(kwargs: Arguments) -> Arguments:
    """Return the arguments with `beta1`, `beta2` and `beta3` in `betas`, for an optimizer that has three."""
    betas = kwargs.get("betas", ())
    if len(betas) == 3:
        kwargs["betas"] = tuple(kwargs.pop(f"beta{index}", beta) for index, beta in enumerate(betas, start=1))
    return kwargs


def _note_unused(settings: OptimizerSettings, declared: Declaration) -> None:
    if settings.target_modules is not None and declared.low_rank is None:
        note_once(f"optim_target_modules is not used: {settings.name.value} updates every trainable parameter")
    if settings.weight_decay and not declared.decays and "weight_decay" not in settings.options:
        note_once(
            f"weight_decay={settings.weight_decay} is not used: {settings.name.value} is created without it, as in "
            f"transformers; optim_args='weight_decay={settings.weight_decay}' applies it to every parameter"
        )


def _require(model: nn.Module | None, name: OptimizerNames) -> nn.Module:
    if model is None:
        raise ConfigError(
            what=f"optim={name.value!r} without a model",
            why="it is created from the modules of the model",
            fix="call get_optimizer_cls_and_kwargs(args, model)",
        )
    return model
