"""Autocast for PrivateUse1, for which torch has no lists of its own; the operations are those it has for CUDA.

The policies are in the documentation of torch.amp: some operations run in the lower precision, some in the widest of
their arguments, and the others that autocast knows in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from tests.support.pretend_device.device_kernels import LIBRARIES
from tests.support.pretend_device.device_settings import DEVICE, is_here

KEY = "AutocastPrivateUse1"
BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
LOWER = {
    *("addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "linear", "matmul"),
    *(
        "mm",
        "mv",
        "prelu",
        "einsum",
        "scaled_dot_product_attention",
        "convolution",
        "_convolution",
        "conv1d",
        "conv2d",
    ),
    *("conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linalg_vecdot"),
    *("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
}
WIDEST = {
    *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot"),
    *("scatter_add", "cat", "stack"),
}


def register_autocast() -> None:
    """Register a kernel for each operation that autocast knows on CUDA; the others pass through."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, KEY)
    aten = torch.library.Library("aten", "IMPL", KEY)
    LIBRARIES.extend([every, aten])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA"):
                base, _, overload = name.removeprefix("aten::").partition(".")
                op = getattr(getattr(torch.ops.aten, base), overload or "default")
                aten.impl(name.removeprefix("aten::"), _make_cast(op, _choose_policy(base)))


def _choose_policy(base: str) -> Callable[[list[torch.Tensor]], torch.dtype]:
    if base in LOWER:
        return lambda tensors: torch.get_autocast_dtype(DEVICE.type)
    return _find_widest if base in WIDEST else lambda tensors: torch.float32


def _find_widest(tensors: list[torch.Tensor]) -> torch.dtype:
    lower = torch.get_autocast_dtype(DEVICE.type)
    return torch.float32 if any(tensor.dtype == torch.float32 for tensor in tensors) else lower


def _make_cast(op: Any, choose: Callable[[list[torch.Tensor]], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in tree_flatten((args, kwargs))[0] if _is_cast(value)]
        dtype = choose(tensors)
        args, kwargs = tree_map(lambda one: one.to(dtype) if _is_cast(one) else one, (args, kwargs))
        with torch._C._ExcludeDispatchKeyGuard(BELOW):
            return op(*args, **kwargs)

    return kernel


def _is_cast(value: Any) -> bool:
    return is_here(value) and value.is_floating_point() and value.dtype != torch.float64
