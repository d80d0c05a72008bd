"""Models that are divided among the processes: by FSDP2, by tensor parallelism, by both, or before they came here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from ..arguments.shard_settings import ShardSettings
from ..core.compiled_model import get_uncompiled
from ..core.errors import ConfigError
from .clipping import clip
from .collectives import ProcessCollectives
from .first_weights import FirstWeights
from .host_memory import return_freed_memory
from .mesh import build_mesh, find_given_mesh
from .optimizer_rules import choose_options, load_state
from .placement import move
from .shard_plan import find_blocks
from .tensor_plan import align_gradients, divide_layers

_HELD = "_keeps_rest_gathered"  # set on a model while it generates


@dataclass
class Sharded(ProcessCollectives):
    """Train in several processes: each holds a part of every weight, and gathers a layer while it computes with it."""

    settings: ShardSettings
    is_sharded: bool = True
    has_unused: bool = False
    _placed: WeakSet[nn.Module] = field(default_factory=WeakSet)

    def place(self, model: nn.Module, *, training: bool = True) -> nn.Module:
        inner = get_uncompiled(model)
        if inner not in self._placed:
            self._divide(inner)
            self._placed.add(inner)
        return model

    def _divide(self, model: nn.Module) -> None:
        """Divide a model, or the rest of one that was passed divided: along the axes of the mesh that it lacks."""
        if self.device.type == "cpu":
            return_freed_memory()
        mesh, first = find_given_mesh(model), None
        if mesh is None:
            first = FirstWeights.of(model, self.device)
            mesh = self._build_mesh()
            if self.tensor_size > 1:
                divide_layers(model, mesh["tp"])
        if self.size > 1 and not isinstance(model, FSDPModule):
            self._shard(model, _select_data_axes(mesh, self.size))
        elif not isinstance(model, FSDPModule):
            if first is not None and not first.is_pending:
                move(model, self.device)
            align_gradients(model)
        if first is not None:
            first.fill(model)

    def _shard(self, model: nn.Module, mesh: DeviceMesh) -> None:
        settings = self.settings
        options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": settings.reshards}
        if settings.offloads:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type != "cpu")
        dtypes: Any = {"param_dtype": settings.parameter_dtype, "reduce_dtype": settings.reduce_dtype}
        blocks = find_blocks(model, settings)
        if settings.recomputes:
            for block in blocks:
                _recompute_activations(block)
        for block in blocks:
            fully_shard(block, mp_policy=MixedPrecisionPolicy(**dtypes), **options)
        # The output's type is set on the whole only: the next layer expects that of the layer before.
        options["reshard_after_forward"] = None  # torch keeps the weights of the rest until the backward needs them
        fully_shard(model, mp_policy=MixedPrecisionPolicy(output_dtype=settings.output_dtype, **dtypes), **options)
        for module in (*blocks, model):
            module.register_forward_hook(_divide_without_backward)
        if callable(getattr(model, "generate", None)):
            cast(Any, model).generate = _keep_rest_gathered(model)

    def _build_mesh(self) -> DeviceMesh:
        """Return the mesh of the processes: in one row, or with a row for each copy of the model."""
        of_host = max(1, self.world.local_size // self.tensor_size)
        parts = self.settings.shard_size or (of_host if self.settings.hybrid else self.size)
        if self.size % parts:
            raise ConfigError(
                what=f"{self.size} processes cannot hold copies of the model that are divided by {parts}",
                why="every copy needs the same number of processes",
                fix=f"start a multiple of {parts} processes, or change dp_shard_size",
            )
        return build_mesh(self.device, copies=self.size // parts, parts=parts, tensor_size=self.tensor_size)

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        inner = get_uncompiled(model)
        return nullcontext() if sync or not isinstance(inner, FSDPModule) else _without_exchange(inner)

    def finish_backward(self, model: nn.Module) -> nn.Module:
        return model

    def search_unused(self, model: nn.Module) -> nn.Module:
        return model

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        return clip(gradients, max_norm)

    def model_state(self, model: nn.Module) -> dict[str, Any]:
        """Return the whole weights, in the first process only. All processes have to call it."""
        state = {}
        for name, value in model.state_dict().items():
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            if self.process_index == 0:
                state[name] = whole.cpu()
        return state

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> Any:
        return model.load_state_dict(state, strict=False)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        load_state(optimizer, state)

    def choose_optimizer_options(self, kind: type, options: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        return choose_options(kind, options, model)


def _recompute_activations(block: nn.Module) -> None:
    """Keep a layer's inputs for the backward pass, and compute again what else it needs."""
    forward = block.forward

    @functools.wraps(forward)
    def run_twice(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    cast(Any, block).forward = run_twice


def _select_data_axes(mesh: DeviceMesh, size: int) -> DeviceMesh:
    """Return the axes along which rows differ; of those with several processes."""
    root = mesh._get_root_mesh()
    names = root.mesh_dim_names or ()
    data = tuple(name for name in ("dp_replicate", "dp_shard", "pp", "dp", "fsdp") if name in names)
    used = tuple(name for name in data if root[name].size() > 1) or data[-1:]
    chosen = root[used] if used else root
    if chosen.size() != size or chosen.ndim > 2:
        raise ConfigError(
            what=f"the model was passed divided along {root}, which does not say how {size} processes share the rows",
            why="its other axes have to be called dp_replicate, dp_shard, dp or fsdp",
            fix="name the axes of the mesh: init_device_mesh(..., mesh_dim_names=('dp_shard', 'tp'))",
        )
    return chosen


def _divide_without_backward(model: nn.Module, inputs: Any, outputs: Any) -> None:
    """Divide the weights again after a forward that no backward follows.

    They would stay gathered otherwise, and the next optimizer step would not change what the model computes with.
    """
    if not torch.is_grad_enabled() and isinstance(model, FSDPModule) and not getattr(model, _HELD, False):
        model.reshard()


def _keep_rest_gathered(model: nn.Module) -> Callable[..., Any]:
    """Return the model's `generate`, during which the weights outside of its layers stay gathered.

    It calls parts of the model (an encoder, a head) that have no weights of their own to gather, and the model itself
    once for each token.
    """
    generate: Callable[..., Any] = getattr(model, "generate")  # noqa: B009

    @functools.wraps(generate)
    def gather_and_generate(*args: Any, **kwargs: Any) -> Any:
        assert isinstance(model, FSDPModule)
        model._get_fsdp_state()._lazy_init()  # the first call decides which module is the outermost one
        model.unshard()
        setattr(model, _HELD, True)
        try:
            return generate(*args, **kwargs)
        finally:
            delattr(model, _HELD)
            model.reshard()

    return gather_and_generate


@contextmanager
def _without_exchange(model: FSDPModule) -> Iterator[None]:
    """Add up gradients in this process alone, inside the block."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
