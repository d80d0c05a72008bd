"""Packages of optimizers: which names need which, and stand-ins that record how they are called."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ostinato.core.choices import OptimizerNames
from ostinato.optim.optimizers import DECLARATIONS

# Classes of the packages, with the signatures that the versions in constraints.txt have.
ADAM = "lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01"
CLASSES = {
    "torch_xla.amp.syncfree.AdamW": ADAM,
    "torch_npu.optim.NpuFusedAdamW": f"{ADAM}, amsgrad=False",
    "torchdistx.optimizers.AnyPrecisionAdamW": (
        f"{ADAM}, use_kahan_summation=False, momentum_dtype=torch.float32, variance_dtype=torch.bfloat16, "
        "compensation_buffer_dtype=torch.bfloat16"
    ),
    "torchao.optim.AdamW4bit": f"{ADAM}, amsgrad=False, *, block_size=128, bf16_stochastic_round=False",
    "torchao.optim.AdamW8bit": f"{ADAM}, amsgrad=False, *, block_size=256, bf16_stochastic_round=False",
    "bitsandbytes.optim.AdamW": (
        f"{ADAM}, amsgrad=False, optim_bits=32, args=None, min_8bit_size=4096, is_paged=False"
    ),
    "bitsandbytes.optim.AdEMAMix": (
        "lr=1e-3, betas=(0.9, 0.999, 0.9999), alpha=5.0, t_alpha=None, t_beta3=None, eps=1e-8, weight_decay=0.01, "
        "optim_bits=32, min_8bit_size=4096, is_paged=False"
    ),
    "bitsandbytes.optim.Lion": (
        "lr=1e-4, betas=(0.9, 0.99), weight_decay=0, optim_bits=32, args=None, min_8bit_size=4096, is_paged=False"
    ),
    "bitsandbytes.optim.RMSprop": (
        "lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, optim_bits=32, args=None, "
        "min_8bit_size=4096"
    ),
    "galore_torch.GaLoreAdamW": (
        "lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True, no_deprecation_warning=False"
    ),
    "galore_torch.GaLoreAdamW8bit": f"{ADAM}, amsgrad=False, optim_bits=32, min_8bit_size=4096, is_paged=False",
    "galore_torch.GaLoreAdafactor": (
        "lr=None, eps=(1e-30, 1e-3), clip_threshold=1.0, decay_rate=-0.8, beta1=None, weight_decay=0.0, "
        "scale_parameter=True, relative_step=True, warmup_init=False"
    ),
    "apollo_torch.APOLLOAdamW": "lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True",
    "lomo_optim.Lomo": "lr=1e-3, clip_grad_norm=None, clip_grad_value=None, weight_decay=0.0",
    "lomo_optim.AdaLomo": "lr=1e-3, loss_scale=1024, eps=(1e-30, 1e-3), clip_threshold=1.0, weight_decay=0.0",
    "grokadamw.GrokAdamW": (
        f"{ADAM}, alpha_init=0.98, lamb=2.0, gamma=0.1, grokking_signal_fns=None, grokking_signal_decay_rate=0.1, "
        "gradient_clipping=1.0"
    ),
    "schedulefree.RAdamScheduleFree": f"{ADAM}, r=0.0, weight_lr_power=2.0, foreach=True, silent_sgd_phase=True",
    "schedulefree.AdamWScheduleFree": f"{ADAM}, warmup_steps=0, r=0.0, weight_lr_power=2.0, foreach=True",
    "schedulefree.SGDScheduleFree": (
        "lr=1.0, momentum=0.9, weight_decay=0, warmup_steps=0, r=0.0, weight_lr_power=2, foreach=True"
    ),
    "optimi.StableAdamW": (
        "lr=None, betas=(0.9, 0.99), weight_decay=0.01, eps=1e-6, decouple_lr=False, max_lr=None, kahan_sum=None, "
        "foreach=None, triton=None, gradient_release=False"
    ),
}
VERSIONS = {"bitsandbytes": "0.50.2", "torchao": "0.18.0", "schedulefree": "1.4.1"}

_CLASS = """
class {name}(torch.optim.Optimizer):
    calls = []

    def __init__(self, params, {signature}):
        given = {{key: value for key, value in locals().items() if key not in ("self", "params", "__class__")}}
        params = params.parameters() if isinstance(params, torch.nn.Module) else params
        super().__init__(params, {{"lr": lr}})
        type(self).calls.append((self.param_groups, given))

    def step(self, closure=None):
        pass
"""

_MANAGER = """
class GlobalOptimManager:
    overrides = []

    @classmethod
    def get_instance(cls):
        return cls()

    def register_module_override(self, module, parameter, options):
        self.overrides.append((module, parameter, options))
"""


def write_stand_ins(directory: Path) -> None:
    """Write every package as Python files whose classes record their arguments and do nothing."""
    for path, signature in CLASSES.items():
        *packages, name = path.split(".")
        folder = directory
        for package in packages:
            folder = folder / package
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()
        with (folder / "__init__.py").open("a") as file:
            file.write("import torch\n" + _CLASS.format(name=name, signature=signature))
    with (directory / "bitsandbytes" / "optim" / "__init__.py").open("a") as file:
        file.write(_MANAGER)
    for package in {path.split(".")[0] for path in CLASSES}:
        version = VERSIONS.get(package, "1.0")
        about = directory / f"{package}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


# What does not run on a CPU, and why, although it can be installed there.
NEEDS_CUDA = {
    "adalomo": "lomo-optim puts a number of AdaLomo on a GPU",
    "galore_adamw_8bit": "galore-torch waits for a GPU after every step of 8 bits",
    "galore_adamw_8bit_layerwise": "galore-torch waits for a GPU after every step of 8 bits",
}


# What the packages say of themselves on a CPU, or with a newer torch.
WARNINGS = [
    pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU:UserWarning"),
    pytest.mark.filterwarnings("ignore:This implementation of AdamW is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.cuda.amp.autocast:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:CUDA is not available or torch_xla is imported:UserWarning"),
]


def require_optimizer(name: str) -> None:
    """Skip the test unless the optimizer can run here."""
    package = DECLARATIONS[OptimizerNames(name)].package
    if package is not None and importlib.util.find_spec(package.name) is None:
        pytest.skip(f"{package.name} is not installed ({package.how})")
    if name == "stable_adamw" and importlib.util.find_spec("triton") is not None:
        pytest.skip("with triton installed, optimi looks for a GPU")


# Packages that cannot be installed beside torch on a CPU: their classes are called through stand-ins alone.
_STAND_INS = ("torch_npu", "torch_xla", "torchdistx")


def describe_trial(name: OptimizerNames) -> str:
    """Return what the tests do with an optimizer, where its package is installed."""
    package = DECLARATIONS[name].package
    if package is not None and package.name in _STAND_INS:
        return "arguments of its class"
    if name.value == "galore_adafactor_layerwise":
        return "arguments of its class; resumed"
    how = " (calls of a GPU left out)" if name.value in NEEDS_CUDA else ""
    return f"trained beside transformers, bit for bit{how}; resumed"
