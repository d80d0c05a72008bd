"""The prediction step: loss, logits and labels of one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..core.logged_numbers import track
from ..core.notices import note_once
from ..core.protocols import Batch, LossHost
from ..core.tree import detach
from ..loss.counting import count_targets
from ..loss.model_outputs import BareTensorError, as_tensor, split_loss, split_result
from .eval_plan import weigh_without_wait


@dataclass(frozen=True)
class StepInputs:
    """The labels of a batch, and the way its loss is computed.

    Labels are () if there are none by name and the loss needs none, and None if they are missing.
    """

    labels: Any
    has_loss: bool
    keywords: dict[str, Any]  # of compute_loss
    returns_outputs: bool  # compute_loss returns the model's outputs beside the loss
    weigh: Callable[[], float | Tensor]  # returns the weight of the mean loss


def plan_step(host: LossHost, inputs: Batch, *, can_return_loss: bool) -> StepInputs:
    """Determine labels and loss arguments of a batch on its device, before its prediction step."""
    label_names = host.label_names
    has_labels = bool(label_names) and all(inputs.get(name) is not None for name in label_names)
    wants_loss = inputs.get("return_loss")
    if not has_labels and (label_names or not (can_return_loss if wants_loss is None else wants_loss)):
        return StepInputs(None, False, {}, False, lambda: 0.0)
    keywords = _build_loss_keywords(host, inputs)
    return StepInputs(
        labels=_unwrap_single(detach(tuple(inputs.get(name) for name in label_names))),
        has_loss=True,
        keywords=keywords,
        returns_outputs="return_outputs" in keywords,
        weigh=partial(weigh_without_wait, host, inputs),
    )


def compute_loss_alone(host: LossHost, model: nn.Module, inputs: Batch) -> Tensor | None:
    """Return the loss of a batch as evaluation computes it, whether it has labels or not; None if there is none."""
    keywords, source = _build_loss_keywords(host, inputs), host._name_loss_source()
    try:
        result = host.compute_loss(model, dict(inputs), **keywords)
        loss = split_result(result, source)[0] if "return_outputs" in keywords else result
        return split_loss(loss, source)[0]
    except BareTensorError as bare:
        note_once(f"no loss is computed in evaluation: {bare.what}")
        return None


def _build_loss_keywords(host: LossHost, inputs: Batch) -> dict[str, Any]:
    signature = host._get_loss_signature()
    keywords: dict[str, Any] = {"return_outputs": True} if signature.takes_return_outputs else {}
    if signature.takes_num_items:
        keywords["num_items_in_batch"] = _count_targets(host, inputs)
    return keywords


def _count_targets(host: LossHost, inputs: Batch) -> Tensor | None:
    """Return the number of targets of a batch, if the loss takes it."""
    if not host.loss_objective.wants_count or "labels" not in inputs:
        return None
    if host.strategy.size > 1 and host._is_overridden("compute_loss"):
        return None  # given a count, a subclass may multiply by the number of processes, as transformers does
    return count_targets(inputs["labels"], shifted=host._has_shifted_labels(inputs))


def read_loss(host: LossHost, step: StepInputs, result: Any) -> tuple[Tensor | None, Any]:
    """Return the loss, and the outputs if `compute_loss` returned them.

    The named losses that make up a loss are tracked, with the weight of the loss.
    """
    source = host._name_loss_source()
    loss, outputs = split_result(result, source) if step.returns_outputs else (result, None)
    total, parts = split_loss(loss, source)
    if parts:
        weight = step.weigh()
        for name, part in parts.items():
            track(name, part, weight)
    return (None if total is None else as_tensor(total, source).detach().mean()), outputs


def collect_step(
    outputs: Any, step: StepInputs, loss: Tensor | None, ignore_keys: list[str], names: OutputNames
) -> tuple[Tensor | None, Any, Any]:
    """Return loss, logits and labels of one batch, detached; logits are the outputs that are not the loss.

    The model's names for them are recorded in `names`, since a user's own step returns these three values only.
    """
    logits = _unwrap_single(detach(logits_of(outputs, ignore_keys, has_loss=loss is not None)))
    names.note(logits, names_of(outputs, ignore_keys, has_loss=loss is not None))
    return loss, logits, step.labels


def logits_of(outputs: Any, ignore_keys: list[str], *, has_loss: bool) -> tuple[Any, ...]:
    """Return all outputs of a model besides its loss. A bare tensor is logits."""
    if isinstance(outputs, Mapping):
        hidden = _get_hidden_names(outputs, ignore_keys, has_loss=has_loss)
        return tuple(value for name, value in outputs.items() if name not in hidden)
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(outputs[1:]) if has_loss and _has_leading_number(outputs) else tuple(outputs)


def names_of(outputs: Any, ignore_keys: list[str], *, has_loss: bool) -> tuple[str, ...] | None:
    """Return the model's names of the outputs besides its loss; None if they have no names.

    >>> names_of({"loss": 1, "logits": 2, "hidden": 3}, [], has_loss=True)
    ('logits', 'hidden')
    """
    if not isinstance(outputs, Mapping):
        return ("logits",) if isinstance(outputs, Tensor) else None
    hidden = _get_hidden_names(outputs, ignore_keys, has_loss=has_loss)
    return tuple(str(name) for name in outputs if name not in hidden)


def _get_hidden_names(outputs: Mapping[Any, Any], ignore_keys: list[str], *, has_loss: bool) -> set[str]:
    return {*ignore_keys, "loss"} if has_loss or outputs.get("loss", 0) is None else set(ignore_keys)


class OutputNames:
    """The names of the last batch's outputs. They are valid for the very object that the step returned.

    >>> import torch
    >>> names, logits = OutputNames(), torch.ones(2)
    >>> names.note(logits, ("logits",))
    >>> names.of(logits), names.of(2 * logits)
    (('logits',), None)
    """

    def __init__(self) -> None:
        self._of: tuple[int, tuple[str, ...] | None] = (0, None)

    def note(self, logits: Any, names: tuple[str, ...] | None) -> None:
        """Record the names; no reference to the logits is kept."""
        self._of = (id(logits), names)

    def of(self, logits: Any) -> tuple[str, ...] | None:
        """Return the names of these logits; None if a user's own step has replaced them."""
        whose, names = self._of
        return names if whose == id(logits) else None


def _has_leading_number(outputs: Any) -> bool:
    """Return whether the first entry is a single number: such a tuple starts with its loss."""
    return isinstance(outputs[0], Tensor) and outputs[0].dim() == 0


def _unwrap_single(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def get_ignored_outputs(model: nn.Module) -> list[str]:
    """Return the outputs that a transformers config excludes from metrics."""
    config = getattr(model, "config", None)
    return list(getattr(config, "keys_to_ignore_at_inference", None) or [])
