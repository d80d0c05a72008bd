"""Models that have no numbers to train."""

from __future__ import annotations

from torch import nn

from ..core.errors import NotSupportedError


def check_weights(model: nn.Module) -> None:
    """A model must have weights, not only their shapes."""
    names = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if names:
        shown = ", ".join(names[:3]) + (f", … ({len(names)} in all)" if len(names) > 3 else "")
        raise NotSupportedError(
            what=f"{type(model).__name__} has no weights: its parameters are on the meta device",
            why=f"there are shapes, and no numbers, in {shown}",
            fix="make it outside of torch.device('meta'), or fill it: model.to_empty(device='cpu'), load_state_dict",
        )
