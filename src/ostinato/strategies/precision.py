"""Number formats: autocast around the model's forward, and scaling so that small float16 gradients are not lost."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments.settings import PrecisionSettings
from ..core.host_copy import read_numbers
from ..core.notices import note_once
from ..core.tree import tree_map

_AS_IT_IS = nullcontext()

# Below this scale, the gradient of the loss itself times the scale is not a normal float16 number: if a gradient is
# still not finite there, its scale is not the cause.
SMALLEST_SCALE = torch.finfo(torch.float16).tiny


@dataclass(frozen=True)
class FoundInfinite:
    """What the scaler found in the gradients of a step, on the device."""

    found: Sequence[Tensor] = ()
    scaler: torch.amp.GradScaler | None = None

    def has_infinite_gradients(self) -> bool:
        return any(read_numbers(self.found))

    def is_due_to_scale(self) -> bool:
        if self.scaler is None or not self.has_infinite_gradients():
            return False
        before = self.scaler.get_scale() / self.scaler.get_backoff_factor()  # it has been lowered since
        return before > SMALLEST_SCALE


def _step_fused(optimizer: Any, bad: Tensor) -> None:
    """Take the step of a fused optimizer, which leaves everything unchanged where `bad` is not zero."""
    optimizer.grad_scale, optimizer.found_inf = None, bad
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf


class FullPrecision:
    """Compute in the parameters' own format."""

    def forward(self, model: nn.Module) -> AbstractContextManager[Any]:
        return _AS_IT_IS

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context with the format of the forward, for code that computes outside of it."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        pass

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        optimizer.step()
        return True

    def skip(self, optimizer: torch.optim.Optimizer) -> bool:
        return False

    def has_overflowed(self, optimizer: torch.optim.Optimizer) -> bool:
        return False

    def step_unless(self, optimizer: torch.optim.Optimizer, bad: Tensor) -> FoundInfinite:
        _step_fused(optimizer, bad)
        return FoundInfinite()


class Autocast(FullPrecision):
    """Compute the forward in a smaller format where that is safe; outputs leave the model as float32."""

    def __init__(self, device_type: str, dtype: torch.dtype) -> None:
        self.device_type, self.dtype = device_type, dtype

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device_type, dtype=self.dtype)

    @contextmanager
    def forward(self, model: nn.Module) -> Iterator[None]:
        original, own = model.forward, vars(model).get("forward")
        if getattr(original, "computes_in", None) == self.dtype:  # already entered
            yield
            return

        @functools.wraps(original)
        def run_in_autocast(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(self.device_type, dtype=self.dtype):
                outputs = original(*args, **kwargs)
            return tree_map(_to_float32, outputs)

        # An attribute of the instance shadows the method, so that a user's `compute_loss` which calls
        # `model(**inputs)` itself is covered as well. It is removed again: a copy of the model made later would
        # otherwise call the original's weights.
        run_in_autocast.computes_in = self.dtype  # type: ignore[attr-defined]
        model.forward = run_in_autocast
        try:
            yield
        finally:
            del model.forward
            if own is not None:  # the user had set a forward there
                model.forward = own


class ScaledFloat16(Autocast):
    """float16 with gradient scaling: steps whose gradients overflow are skipped and the scale is halved."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type, torch.float16)
        self.scaler = torch.amp.GradScaler(device_type)
        self.skipped_last_step = False
        self._unscaled = False

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._unscaled:  # a subclass may have done it
            self.scaler.unscale_(optimizer)
            self._unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        # A fused optimizer is called even then and leaves the weights unchanged by itself, so transformers does not
        # count its step as skipped: the schedule advances.
        looks_itself = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.skipped_last_step = not looks_itself and self._has_infinite(optimizer)
        self.scaler.step(optimizer)
        self._update()
        return not self.skipped_last_step

    def skip(self, optimizer: torch.optim.Optimizer) -> bool:
        if self._has_infinite(optimizer):
            return self.step(optimizer)  # the scaler keeps it from the weights
        self.skipped_last_step = True
        self._update()
        return False

    def has_overflowed(self, optimizer: torch.optim.Optimizer) -> bool:
        return self._has_infinite(optimizer) and self.scaler.get_scale() > SMALLEST_SCALE

    def step_unless(self, optimizer: torch.optim.Optimizer, bad: Tensor) -> FoundInfinite:
        found = list(self.scaler._found_inf_per_device(optimizer).values())
        for own in found:
            bad = torch.maximum(bad, own.to(bad.device))
        _step_fused(optimizer, bad)
        self.skipped_last_step = False  # as far as transformers counts
        self._update()
        return FoundInfinite(found, self.scaler)

    def _has_infinite(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether the scaler found a gradient that is not finite when it unscaled them."""
        return any(found.item() for found in self.scaler._found_inf_per_device(optimizer).values())

    def _update(self) -> None:
        self.scaler.update()
        self._unscaled = False


def choose_precision(settings: PrecisionSettings) -> FullPrecision:
    """Return the precision that the arguments select with bf16 and fp16."""
    if settings.bf16:
        return Autocast(settings.device_type, torch.bfloat16)
    if settings.fp16 and settings.device_type == "cpu":
        note_once("fp16=True on a CPU computes in float32, as transformers does silently; bf16=True works on CPUs")
    elif settings.fp16:
        return ScaledFloat16(settings.device_type)
    return FullPrecision()


@contextmanager
def half_precision_weights(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Convert the model's floating-point weights to `dtype` while entered; restore the same weights afterwards."""
    if dtype is None:
        yield
        return
    tensors = [*model.parameters(), *model.buffers()]
    originals = [(tensor, tensor.data) for tensor in tensors if tensor.is_floating_point()]
    try:
        for tensor, data in originals:
            tensor.data = data.to(dtype)
        yield
    finally:
        for tensor, data in originals:
            tensor.data = data


def _to_float32(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and leaf.dtype in (torch.bfloat16, torch.float16):
        return leaf.float()
    return leaf
