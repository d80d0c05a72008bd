"""Tensor parallelism: layers are divided among processes which compute the same rows, as the model's plan says."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from ..core.errors import ConfigError, NotSupportedError
from .placement import Slot, find_ties

_APPLY = "transformers.distributed.tensor_parallel"  # knows the styles of all of transformers' models
_ADAPTED = "base_layer"  # the name of a layer inside of its adapter (LoRA)


def divide_layers(model: nn.Module, mesh: DeviceMesh) -> None:
    """Divide the layers of a model along a mesh of one axis. The model computes as before, on the same inputs.

    Raises:
        ConfigError: The model has no plan, or one that does not fit the number of processes.
        NotSupportedError: The plan has a style that is not known.
    """
    plan = find_plan(model)
    _check_heads(model, mesh.size())
    ties = find_ties(model)
    styles = {name: _read_style(style) for name, style in plan.items()}
    if None not in styles.values():
        parallelize_module(model, mesh, _include_adapters(model, styles))
    else:
        _apply_by_transformers(model, mesh, plan)
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise ConfigError(
            what=f"tp_plan of {type(model).__name__} fits none of its layers",
            why=f"it names {', '.join(list(plan)[:4])}",
            fix="name the layers as named_modules() does, with * for a number",
        )
    _tie_again(model, ties)


def align_gradients(model: nn.Module) -> None:
    """Divide each gradient as its parameter is: some layers return theirs whole."""
    for parameter in model.parameters():
        if isinstance(parameter, DTensor) and parameter.requires_grad:
            parameter.register_hook(_Alignment(parameter.placements))


class _Alignment:
    def __init__(self, placements: Any) -> None:
        self.placements = placements

    def __call__(self, gradient: Tensor) -> Tensor | None:
        if isinstance(gradient, DTensor) and gradient.placements != self.placements:
            return gradient.redistribute(placements=self.placements)
        return None


def find_plan(model: nn.Module) -> dict[str, Any]:
    """Return the styles by the names of layers, as `tp_plan` of the model or of one inside it (an adapter's base)."""
    for name, module in model.named_modules():
        is_own = hasattr(type(module), "tp_plan") or {"tp_plan", "_tp_plan"} & vars(module).keys()
        plan = (getattr(module, "tp_plan", None) or getattr(module, "_tp_plan", None)) if is_own else None
        if isinstance(plan, Mapping) and plan:
            return {f"{name}.{layer}" if name else layer: style for layer, style in plan.items()}
    raise ConfigError(
        what=f"tensor parallelism is requested, and {type(model).__name__} has no plan for it",
        why="tp_plan says which layers are divided by columns and which by rows",
        fix="use dp_shard_size, which divides every model; or set model.tp_plan = {'layers.*.up': 'colwise', "
        "'layers.*.down': 'rowwise'}",
    )


def _read_style(style: Any) -> ParallelStyle | None:
    """Return torch's object for a style; None if torch has none."""
    if isinstance(style, ParallelStyle):
        return style
    whole = Replicate()
    known = {
        "colwise": lambda: ColwiseParallel(),
        "rowwise": lambda: RowwiseParallel(),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=whole),
        "colwise_rep": lambda: ColwiseParallel(output_layouts=whole),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=whole),
    }
    return known[style]() if style in known else None


def _include_adapters(model: nn.Module, styles: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with the parts of adapted layers: the half of an adapter next to what is divided is too."""
    adapted = {
        name for name, module in model.named_modules() if isinstance(getattr(module, _ADAPTED, None), nn.Module)
    }
    plan: dict[str, Any] = {}
    for name, module in model.named_modules():
        style = next((style for pattern, style in styles.items() if _matches(name, pattern)), None)
        if style is None:
            continue
        if name not in adapted:
            plan[name] = style
            continue
        plan[f"{name}.{_ADAPTED}"] = style
        half = "lora_B" if isinstance(style, ColwiseParallel) else "lora_A"
        for inner in getattr(module, half, {}):
            plan[f"{name}.{half}.{inner}"] = style
    return plan


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(one in ("*", part) for part, one in zip(parts, wanted, strict=True))


def _apply_by_transformers(model: nn.Module, mesh: DeviceMesh, plan: Mapping[str, Any]) -> None:
    try:
        apply = importlib.import_module(_APPLY).apply_tensor_parallelism
    except (ImportError, AttributeError):
        unknown = sorted({str(style) for style in plan.values() if _read_style(style) is None})
        raise NotSupportedError(
            what=f"the plan of {type(model).__name__} has unknown styles: {', '.join(unknown)}",
            why="only transformers knows them, which is not installed or has no apply_tensor_parallelism",
            fix="use colwise, rowwise, colwise_gather_output, embedding_rowwise or torch's ParallelStyle objects, or "
            "divide the model while it is loaded: from_pretrained(..., tp_plan='auto')",
        ) from None
    apply(model, mesh, dict(plan))


def _check_heads(model: nn.Module, size: int) -> None:
    """Raise if a head of attention would be cut in two."""
    config: Any = getattr(model, "config", None)
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % size:
            raise ConfigError(
                what=f"tp_size={size} does not fit {type(model).__name__}",
                why=f"{name} is {heads}, which is no multiple of {size}: a head would be cut in two",
                fix=f"choose a tp_size that divides {heads}, or dp_shard_size, which divides every model",
            )


def _tie_again(model: nn.Module, ties: list[list[Slot]]) -> None:
    for (first, name), *others in ties:
        kept = first._parameters[name]
        for module, other in others:
            own = module._parameters[other]
            if getattr(own, "placements", None) != getattr(kept, "placements", None):
                raise ConfigError(
                    what=f"two layers of {type(model).__name__} share a weight and would be divided in two ways",
                    why=f"{type(first).__name__} and {type(module).__name__} have different styles in tp_plan",
                    fix="give both the same style, or untie them",
                )
            module._parameters[other] = kept
