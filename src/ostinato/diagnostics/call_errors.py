"""Errors for calls of forward and of loss functions, and for a loss without a gradient."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from ..core.errors import DataError, LossFunctionError, NoGradientError, OstinatoError
from ..data.dataset_errors import find_batch_fault
from .column_errors import explain_missing_inputs, explain_missing_labels, explain_unexpected_columns
from .context import FailureContext, was_entered


def explain_batch_type(error: Exception, context: FailureContext, match: re.Match[str]) -> DataError | None:
    """Return the error for a batch that is not a dict."""
    return find_batch_fault(context.batch, context.collator)


def explain_call(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Return the error for a call of forward or of the loss function with arguments it does not take."""
    callee = str(error).partition("(")[0]
    if callee == _get_full_name(context.inner.forward) and not was_entered(error, context.inner.forward):
        return explain_unexpected_columns(context)
    if context.loss_func is not None and not was_entered(error, context.loss_func):
        return _explain_loss_function_call(context)
    return None


def _get_full_name(function: Callable[..., Any]) -> str:
    return getattr(inspect.unwrap(function), "__qualname__", "")


def _explain_loss_function_call(context: FailureContext) -> LossFunctionError | None:
    assert context.loss_func is not None
    try:
        signature = inspect.signature(context.loss_func)
        signature.bind(None, None, num_items_in_batch=None)
    except ValueError:
        return None
    except TypeError as reason:
        return LossFunctionError(
            what=f"compute_loss_func cannot be called: {reason}",
            why=f"it is called with (outputs, labels, num_items_in_batch=...), and its signature is {signature}",
            fix="define it as def loss(outputs, labels, num_items_in_batch=None): ...",
        )
    return None


def explain_labels_of_none(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Return the error for a loss function that received None as labels."""
    if context.loss_func is None or "labels" in context.columns or not was_entered(error, context.loss_func):
        return None
    return explain_missing_labels(context, "compute_loss_func received labels=None: the batch has no labels")


def explain_no_inputs(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Return the error for a model of transformers that received none of its inputs."""
    main = getattr(context.inner, "main_input_name", "input_ids")
    if not isinstance(error, ValueError) or not type(context.inner).__module__.startswith("transformers."):
        return None
    if main not in context.columns and "inputs_embeds" not in context.columns:
        return explain_missing_inputs(context)
    decodes = getattr(context.config, "is_encoder_decoder", False)
    if decodes and not {"labels", "decoder_input_ids", "decoder_inputs_embeds"} & set(context.columns):
        return explain_missing_labels(
            context, f"{context.name} received no labels, from which it creates the decoder inputs"
        )
    return None


def explain_no_gradient(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    parameters = list(context.model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        return NoGradientError(
            what=f"nothing to train: no parameter of {context.name} is trainable",
            why=f"all {len(parameters)} have requires_grad=False",
            fix="unfreeze the parameters to train: for parameter in model.<part>.parameters(): "
            "parameter.requires_grad_(True)",
        )
    if context.gradient_checkpointing:
        return NoGradientError(
            what="the loss does not depend on any trainable parameter",
            why="gradient checkpointing detaches the graph if the embeddings it starts from are frozen",
            fix="call model.enable_input_require_grads(), or set gradient_checkpointing_kwargs="
            "{'use_reentrant': False}",
        )
    return NoGradientError(
        what="the loss does not depend on any trainable parameter",
        why="it was computed inside torch.no_grad(), from .detach() or .item(), or from argmax, which has no gradient",
        fix="compute the loss from the logits, with gradients enabled",
    )
