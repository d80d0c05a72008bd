"""Generation for one batch: the ids that a model writes without access to the labels."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.protocols import Batch

# If these are None, the model's own generation config decides.
_UNSET_BY_NONE = ("max_length", "max_new_tokens", "num_beams")
_UNCONFIGURED_WIDTH = 20  # the limit of `generate` if none is configured


def generate(
    model: nn.Module,
    inputs: Batch,
    options: Mapping[str, Any],
    *,
    label_names: Collection[str],
    in_step: bool = False,
) -> Tensor:
    """Return the ids that `model` generates for each row, as wide as the longest of the batch.

    With `in_step`, processes go on until the last of them is done: each needs the others' weights.
    """
    write: Any = model.generate
    given = select_inputs(inputs, label_names, wanted=inspect.signature(write).parameters)
    with torch.no_grad():
        written = write(**{**given, **_select_options(options), **({"synced_gpus": True} if in_step else {})})
    return getattr(written, "sequences", written)  # return_dict_in_generate=True: an object with more than the ids


def select_inputs(inputs: Batch, label_names: Collection[str], wanted: Collection[str] = ()) -> Batch:
    """Return the part of a batch that is passed to `generate`: nothing that reveals the labels.

    Labels are left out, unless `generate` has parameters of their names. Decoder inputs are left out if they were made
    from the labels, which shows in their shape; otherwise they are the beginning of a text that the model continues.

    >>> row = torch.ones(1, 3)
    >>> list(select_inputs({"input_ids": row, "labels": row, "decoder_input_ids": row}, ["labels"]))
    ['input_ids']
    """
    shapes = [inputs[name].shape for name in label_names if isinstance(inputs.get(name), Tensor)]
    told, start = {*label_names} - {*wanted}, inputs.get("decoder_input_ids")
    if not isinstance(start, Tensor) or start.shape in shapes:
        told |= {"decoder_input_ids", "decoder_attention_mask"}
    return {name: value for name, value in inputs.items() if name not in told}


def _select_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for `generate`.

    Whether a process waits for others during generation is not up to the user, so `synced_gpus` is left out.
    """
    unset = {name for name in _UNSET_BY_NONE if options.get(name) is None} | {"synced_gpus"}
    return {name: value for name, value in options.items() if name not in unset}


def pad_to_width(ids: Tensor, width: int, filler: int) -> Tensor:
    """Return the rows with `filler` appended up to `width`; they are never shortened.

    >>> pad_to_width(torch.tensor([[5, 6]]), 4, 0).tolist()
    [[5, 6, 0, 0]]
    """
    return F.pad(ids, (0, max(0, width - ids.shape[-1])), value=filler)


def get_configured_width(model: nn.Module) -> int:
    """Return the width limit of the model's own configuration; options of one evaluation do not change it."""
    settings = getattr(model, "generation_config", None)
    more: int | None = getattr(settings, "max_new_tokens", None)
    longest: int | None = getattr(settings, "max_length", None)
    return longest or (_UNCONFIGURED_WIDTH if more is None else more + 1)


def find_filler(processing_class: Any, model: nn.Module) -> int | None:
    """Return the id that follows the end of a text: the tokenizer's padding or eos, or the model's.

    Return None if it is unknown.
    """
    config, generation = getattr(model, "config", None), getattr(model, "generation_config", None)
    tokenizer = getattr(processing_class, "tokenizer", processing_class)  # a processor has one inside
    for owner, name in (
        (tokenizer, "pad_token_id"),
        (tokenizer, "eos_token_id"),
        (config, "pad_token_id"),
        (generation, "pad_token_id"),
        (generation, "eos_token_id"),
        (config, "eos_token_id"),
    ):
        found = getattr(owner, name, None)
        if isinstance(found, (list, tuple)) and found:
            found = found[0]
        if isinstance(found, int):
            return found
    return None
