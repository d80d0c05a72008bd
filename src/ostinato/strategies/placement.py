"""The devices of a model: those it was placed on before it was passed to a trainer, or none."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..core.errors import NotSupportedError


def is_placed(model: nn.Module) -> bool:
    """Return whether the model has to stay on its devices.

    This holds for a model with a device map, of one device or several; one that bitsandbytes quantized; or one with a
    part that is spread over several devices.
    """
    if _get_device_map(model) or getattr(model, "quantization_method", None) == "bitsandbytes":
        return True
    return any(len(set(_get_device_map(part).values())) > 1 for part in model.modules())


def find_device(model: nn.Module, default: torch.device) -> torch.device:
    """Return the one device that holds all parameters of the model, or `default` if there are several or none."""
    devices = {parameter.device for parameter in model.parameters() if not parameter.is_meta}  # meta: offloaded
    if len(devices) != 1:
        return default
    (own,) = devices
    is_default = own.type == default.type and default.index in (None, own.index)
    return default if is_default else own


def move(model: nn.Module, device: torch.device) -> None:
    """Move a model to a device. Modules that share a parameter still share it, which `nn.Module.to` does not ensure.

    For devices other than CPU, CUDA and a few more, it makes a new parameter for each module.
    """
    ties = find_ties(model)
    model.to(device)
    for (first, first_name), *others in ties:
        for module, name in others:
            module._parameters[name] = first._parameters[first_name]


Slot = tuple[nn.Module, str]


def find_ties(model: nn.Module) -> list[list[Slot]]:
    """Return the slots of modules that hold the same parameter, for each that is in several."""
    places: dict[int, list[Slot]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return [slots for slots in places.values() if len(slots) > 1]


def check_weights(model: nn.Module) -> None:
    """Raise if the model has parameters on the meta device."""
    names = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if names:
        shown = ", ".join(names[:3]) + (f", … ({len(names)} in all)" if len(names) > 3 else "")
        raise NotSupportedError(
            what=f"{type(model).__name__} has no weights: its parameters are on the meta device",
            why=f"these parameters have shapes and no values: {shown}",
            fix="create it outside of torch.device('meta'), or call model.to_empty(device='cpu') and load_state_dict",
        )


def _get_device_map(model: nn.Module) -> dict[str, Any]:
    return getattr(model, "hf_device_map", None) or {}
