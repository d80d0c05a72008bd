"""Test whether a model separates packed rows: joined rows must compute what each of them computes alone.

Nothing else shows it. A model may take positions without using them to find where a row begins, and the same model may
use them or not, depending on its attention, its cache, and the release of its library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...core import accelerator
from ...core.errors import DataError, ModelOutputError
from ...core.logged_numbers import collect_numbers
from ...core.notices import note_once
from ...core.random import preserve_rng
from ...core.tree import has_length, tree_map
from ..columns import list_forward_parameters, unwrap_model
from ..dataset_errors import RowNames
from .packing import IGNORED, SEPARATORS, PackingCollator, dtype_of, takes_any_keyword

Pack = Callable[[list[Any]], Any]

IN_BATCH = RowNames()
# Each row is also computed alone, and logits of a large vocabulary take memory: a few rows are enough to see one row
# in another.
MAX_ROWS = 4
MAX_TOKENS = 128


class PackingError(DataError):
    """A model in which packed rows differ from the same rows alone."""


def check_packing(
    model: nn.Module,
    rows: Sequence[Mapping[str, Any]],
    pack: Pack,
    collate_one: Pack | None = None,
    *,
    names: RowNames = IN_BATCH,
) -> None:
    """Raise for a model that computes something else from rows packed by `pack` than from each of them alone.

    The token losses of the first rows, packed, must add up to those of the rows alone (relative 1e-4 in float32), and
    other tokens in one row must change nothing in another. The check runs in evaluation mode without gradients; modes,
    buffers and random streams are restored. `collate_one` makes a batch of a single row; without it the batch is just
    its tokens. `names` gives the names of the rows in errors.

    >>> check_packing(model, rows[:4], PackingCollator.for_model(model))  # doctest: +SKIP
    """
    _Trial.of(model, rows, pack, collate_one, names).check(pack)


def choose_packing(
    model: nn.Module,
    rows: Sequence[Mapping[str, Any]],
    collate_one: Pack | None = None,
    *,
    max_length: int | None = None,
    shifted: bool | None = None,
    names: RowNames = IN_BATCH,
) -> PackingCollator:
    """Return the packing that a model computes correctly: by what its forward takes, or by a mask of tokens x tokens.

    Raises the `PackingError` of the first one where none is correct. With `shifted=None` a trial shows whether the
    first label of a row counts.

    >>> choose_packing(model, rows[:4], max_length=4096)  # doctest: +SKIP
    """
    if not _select_first_rows(rows)[0]:
        raise PackingError(
            what=f"packing=True, and the first {len(rows)} rows of the training set have no tokens",
            why=f"packing concatenates 'input_ids', and the rows have {', '.join(rows[0]) if rows else 'no columns'}",
            fix="tokenize the rows, or leave packing out: it is for language models",
        )
    plain = PackingCollator.for_model(model, max_length=max_length, shifted=shifted)
    if shifted is None and getattr(unwrap_model(model), "loss_type", None) is None:
        plain = replace(plain, shifted=_ignores_first_label(model, rows, plain))
    trial = _Trial.of(model, rows, plain, collate_one, names)
    plain = replace(plain, first_position=trial.find_first_position())
    try:
        trial.check(plain)
        return plain
    except PackingError as error:
        masked = replace(plain, mask="full" if trial.is_bidirectional() else "causal")
        if not _takes_masks(model) or not trial.passes(masked):
            raise error
    note_once(
        f"{type(unwrap_model(model)).__name__} separates packed rows only by a mask of tokens x tokens; a max_length "
        "of packed rows keeps the mask small"
    )
    return masked


# Trials --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tolerance:
    """The relative difference allowed between the same numbers computed in another order."""

    loss: float
    logits: float
    crossing: float  # for two batches of one shape that differ only in the tokens of another row


EXACT = Tolerance(loss=1e-4, logits=1e-3, crossing=1e-5)  # float32
COARSE = Tolerance(loss=1e-2, logits=5e-2, crossing=1e-3)  # bfloat16, float16, and float32 with TF32 multiplication


@dataclass(frozen=True)
class _Result:
    """The outputs of a model for one row, packed or not."""

    loss: float | None  # the model's own: usually a mean over the targets
    targets: int
    logits: Tensor | None  # (tokens, classes)
    token_losses: Tensor | None  # 0 where nothing is predicted

    @property
    def total(self) -> float:
        """The sum of the loss over the tokens of the row."""
        if self.token_losses is not None:
            return float(self.token_losses.sum())
        return self.loss * self.targets if self.loss is not None and self.targets else 0.0  # no targets: no mean


@dataclass(frozen=True)
class _Trial:
    """A few rows, and the outputs of the model for each of them alone."""

    model: nn.Module
    rows: list[dict[str, Any]]
    names: list[str]
    source: str
    lengths: list[int]
    alone: list[_Result]
    shifted: bool

    @classmethod
    def of(
        cls, model: nn.Module, rows: Sequence[Any], pack: Pack, collate_one: Pack | None, names: RowNames
    ) -> _Trial:
        places, chosen = _select_first_rows(rows)
        if not chosen:
            pack(list(rows))  # raises if the rows are faulty
        shifted = getattr(pack, "shifted", True)
        if shifted:
            chosen = [_ensure_target(row) for row in chosen]
        single = [_remove_limit(pack)([row]) for row in chosen]
        batches = [_remove_separators(each) for each in single]
        if collate_one is not None:
            batches = [_copy_labels(collate_one([row]), each) for row, each in zip(chosen, single, strict=True)]
        with preserve_state(model):
            alone = [_run_model(model, batch, shifted=shifted) for batch in batches]
        lengths = [each["input_ids"].shape[-1] for each in single]
        return cls(model, chosen, [names.name(each) for each in places], names.source, lengths, alone, shifted)

    def check(self, pack: Pack) -> None:
        """Raise unless these rows, packed, give the same as alone."""
        if sum(each.targets for each in self.alone) == 0:
            note_once("packing could not be checked: the first rows have no label that counts")
            return
        batch = _remove_limit(pack)(list(self.rows))
        with preserve_state(self.model):
            packed = _run_model(self.model, batch, shifted=self.shifted)
            tolerance = _choose_tolerance(self.model)
            why = self._find_crossing(batch, packed, tolerance) or self._find_difference(batch, packed, tolerance)
        if why is not None:
            rows = f"{', '.join(dict.fromkeys(self.names))} of the {self.source} ({sum(self.lengths)} tokens)"
            losses = f"{packed.total:.6g} packed, {self._sum_losses():.6g} alone"
            raise PackingError(
                what=f"{type(unwrap_model(self.model)).__name__} mixes up packed rows: the loss of {rows} is {losses}",
                why=why,
                fix=_advise(self.model, batch),
            )

    def passes(self, pack: Pack) -> bool:
        """Return whether the check passes. A model that fails on such a batch does not take it."""
        try:
            self.check(pack)
        except Exception:
            return False
        return True

    def _sum_losses(self) -> float:
        return sum(each.total for each in self.alone)

    # ---- comparisons ---------------------------------------------------------------------------

    def _find_difference(self, batch: Mapping[str, Any], packed: _Result, tolerance: Tolerance) -> str | None:
        """Return why packed rows differ from rows alone although none sees another; None if they do not differ."""
        for name, ours, theirs in zip(self.names, self._split_rows(packed.logits), self.alone, strict=False):
            if theirs.logits is not None and theirs.logits.shape == ours.shape:
                distance = _measure_distance(ours, theirs.logits)
                if distance > tolerance.logits:
                    return f"the logits of {name} differ by {100 * distance:.2g} %: {self._explain_positions()}"
        if packed.token_losses is not None and not _is_close(packed.total, self._sum_losses(), tolerance.loss):
            return f"the losses of its tokens differ from those of the rows alone: {self._explain_positions()}"
        if not self._losses_agree(batch, packed, tolerance.loss):
            return (
                "its loss is not a sum over the labels: it predicts the first token of a row from the row before, "
                "or has a part that depends on which rows share a batch"
            )
        return None

    def _explain_positions(self) -> str:
        takes = "position_ids" in list_forward_parameters(self.model) or takes_any_keyword(self.model)
        does = "ignores position_ids that start again" if takes else "takes no position_ids"
        return f"forward {does}, and numbers the tokens of later rows differently than alone"

    def _split_rows(self, logits: Tensor | None) -> list[Tensor]:
        """Return the logits of each row in a packed row."""
        return [] if logits is None or len(logits) != sum(self.lengths) else list(logits.split(self.lengths))

    def _losses_agree(self, batch: Mapping[str, Any], packed: _Result, tolerance: float) -> bool:
        """Return whether the model's own loss adds up, as a mean over the targets or as a sum."""
        counting = [each for each in self.alone if each.targets]
        losses = [each.loss for each in counting if each.loss is not None]
        if packed.loss is None or len(losses) < len(counting):
            return True
        means = sum(loss * each.targets for loss, each in zip(losses, counting, strict=True))
        return (
            _is_close(packed.loss * packed.targets, means, tolerance)
            or _is_close(packed.loss, sum(losses), tolerance)
            or self._sums_agree(batch, packed, tolerance)
        )

    def _sums_agree(self, batch: Mapping[str, Any], packed: _Result, tolerance: float) -> bool:
        """Return whether losses add up without a part that is no sum over tokens, as mixtures of experts have.

        A loss that is divided by `num_items_in_batch` reveals its sum: twice the difference between the losses for a
        count of 1 and a count of 2.
        """
        if packed.token_losses is None or not _takes_num_items(self.model):
            return False
        one, two = (
            _find_loss(self.model(**_move_to_device(self.model, batch), num_items_in_batch=count)) for count in (1, 2)
        )
        if one is None or two is None or one == two:
            return False
        return _is_close(2 * (one - two), float(packed.token_losses.sum()), tolerance)

    def _find_crossing(self, batch: Mapping[str, Any], packed: _Result, tolerance: Tolerance) -> str | None:
        """Return what in the model lets other tokens in the first row change later rows; None if they do not."""
        first = self.lengths[0]
        ids, labels = batch["input_ids"].clone(), batch["labels"].clone()
        ids[..., :first] = _replace_tokens(ids, first)
        labels[..., :first] = IGNORED
        changed = _run_model(self.model, {**batch, "input_ids": ids, "labels": labels}, shifted=self.shifted)
        if packed.logits is not None and changed.logits is not None:
            distance = _measure_distance(changed.logits[first:], packed.logits[first:])
        else:
            as_before = _run_model(self.model, {**batch, "labels": labels}, shifted=self.shifted)
            distance = abs(changed.total - as_before.total) / max(abs(as_before.total), 1e-12)
        if not distance > tolerance.crossing:  # also if it is NaN, which shows nothing
            return None
        crosses = "crosses from one row into the next: other tokens in the first change the results of the second"
        return f"{_guess_carrier(self.model)} {crosses}"

    # ---- single rows ---------------------------------------------------------------------------

    def find_first_position(self) -> int:
        """Return the first position that the model counts from: 0, or the padding's id + 1 as RoBERTa does."""
        config = getattr(unwrap_model(self.model), "config", None)
        padding, most = getattr(config, "pad_token_id", None), getattr(config, "max_position_embeddings", None)
        if "position_ids" not in list_forward_parameters(self.model) or not isinstance(padding, int):
            return 0
        batch = self._build_single_row(-1)
        positions = torch.arange(batch["input_ids"].shape[-1])[None]
        if padding < 0 or not isinstance(most, int) or padding + 1 + positions.numel() > most:
            return 0
        distances = [self._measure_effect(batch, position_ids=positions + start) for start in (0, padding + 1)]
        return padding + 1 if distances[1] < distances[0] else 0

    def is_bidirectional(self) -> bool:
        """Return whether a token changes what is computed from earlier ones, as in encoders."""
        batch = self._build_single_row(-1)
        ids = batch["input_ids"].clone()
        ids[..., -1:] = _replace_tokens(ids, ids.shape[-1])[..., -1:]
        return self._measure_effect(batch, before=-1, input_ids=ids) > _choose_tolerance(self.model).crossing

    def _build_single_row(self, place: int) -> dict[str, Any]:
        return _remove_separators(PackingCollator(shifted=self.shifted)([self.rows[place]]))  # type: ignore[arg-type]

    def _measure_effect(self, batch: Mapping[str, Any], before: int | None = None, **changes: Any) -> float:
        """Return how far a change moves the logits, or those of the tokens before the position `before`."""
        with preserve_state(self.model):
            logits = [
                _run_model(self.model, each, shifted=self.shifted).logits for each in (batch, {**batch, **changes})
            ]
        if logits[0] is None or logits[1] is None:
            return 0.0
        return _measure_distance(logits[1][:before], logits[0][:before])


def _guess_carrier(model: nn.Module) -> str:
    """Return what may carry information from token to token."""
    config = getattr(unwrap_model(model), "config", None)
    attends = any(isinstance(each, nn.MultiheadAttention) for each in model.modules())
    if attends or getattr(config, "num_attention_heads", None):
        return "attention"
    recurrent = any(isinstance(each, nn.RNNBase) for each in model.modules())
    return "a recurrent state" if recurrent else "something (attention, a state, a convolution)"


def _advise(model: Any, batch: Mapping[str, Any]) -> str:
    """Return what may help this model."""
    inner = unwrap_model(model)
    config = getattr(inner, "config", None)
    instead = "use split_by_length=True instead of packing, which saves padding and keeps rows separate"
    caches = "use_cache" in list_forward_parameters(model) and getattr(config, "use_cache", False)
    if caches and batch.get("use_cache") is not False:
        return f"set model.config.use_cache = False, or pack with PackingCollator.for_model(model); else {instead}"
    attention = getattr(config, "_attn_implementation", None)
    kinds = [kind for kind in ("sdpa", "flash_attention_2") if kind != attention and _supports(inner, kind)]
    if attention is None or not kinds:
        return instead
    return f"load the model with attn_implementation={' or '.join(map(repr, kinds))}, or {instead}"


def _supports(model: Any, kind: str) -> bool:
    return bool(getattr(model, {"sdpa": "_supports_sdpa", "flash_attention_2": "_supports_flash_attn"}[kind], False))


# Rows and batches ----------------------------------------------------------------------------------------------------


def _remove_limit(pack: Any) -> Any:
    """Return the packing of all rows into one: rows in different batches show nothing."""
    return replace(pack, max_length=None) if isinstance(pack, PackingCollator) else pack


def _select_first_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the first rows with tokens, cut short, and their positions; for a single row also its half, in front."""
    starts = {place: start for place, row in enumerate(rows) if (start := _find_first_token(row)) is not None}
    places = list(starts)[:MAX_ROWS]
    chosen = [_slice_row(rows[place], starts[place], starts[place] + MAX_TOKENS) for place in places]
    if len(chosen) != 1:
        return places, chosen
    half = max(len(chosen[0]["input_ids"]) // 2, 1)
    return places * 2, [_slice_row(chosen[0], 0, half), chosen[0]]


def _find_first_token(row: Mapping[str, Any]) -> int | None:
    """Return where a row begins, after padding; None for a row without tokens."""
    tokens, mask = _find_length(row.get("input_ids")) or 0, row.get("attention_mask")
    real = range(tokens) if _find_length(mask) != tokens else (at for at in range(tokens) if mask[at])  # type: ignore[index]
    return next(iter(real), None)


def _slice_row(row: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return a part of a row, for all columns that have a value for every token."""
    tokens = len(row["input_ids"])
    return {name: value[start:end] if _find_length(value) == tokens else value for name, value in row.items()}


def _ensure_target(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in which something is predicted: a prompt has no targets, so its tokens become its labels."""
    labels = row.get("labels")
    if _find_length(labels) is None or any(label != IGNORED for label in labels[1:]):  # type: ignore[index]
        return row
    return {**row, "labels": row["input_ids"]}


def _find_length(value: Any) -> int | None:
    return len(value) if has_length(value) else None


def _remove_separators(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a single row: its tokens, without the inputs that separate it from others."""
    separators = ("attention_mask", *SEPARATORS)
    return {name: value for name, value in packed.items() if name not in separators}


def _copy_labels(batch: Mapping[str, Any], packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of one row, with the labels it has when packed: collators differ in what they leave out.

    A padded batch is not used: the side of the padding, and how the model numbers it, are not the subject here.
    """
    if batch["input_ids"].shape != packed["input_ids"].shape:
        return _remove_separators(packed)
    return {**batch, "labels": packed["labels"]}


def _replace_tokens(ids: Tensor, count: int) -> Tensor:
    """Return another token for each of the first tokens, out of those in the row, which the model is sure to know."""
    own = ids[..., :count]
    one = ids.flatten()[0]
    two = next((each for each in ids.flatten() if each != one), one - 1 if one > 0 else one + 1)
    return torch.where(own == one, two, one)


# The model -----------------------------------------------------------------------------------------------------------


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Use evaluation mode without gradients and with copied buffers; restore modes, streams and buffers at the end."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    for module, name, buffer in buffers:
        module._buffers[name] = buffer.clone()
    try:
        model.eval()
        with preserve_rng(), collect_numbers(None), torch.no_grad():
            yield
    finally:
        for module, name, buffer in buffers:
            module._buffers[name] = buffer
        for module, training in modes:
            module.training = training


def _run_model(model: nn.Module, batch: Mapping[str, Any], *, shifted: bool) -> _Result:
    """Return the loss and the logits of a batch of one row."""
    batch = _move_to_device(model, batch)
    outputs = model(**batch)
    labels = batch["labels"][0]
    loss, logits = _find_loss(outputs), _find_logits(outputs, len(labels))
    if loss is None and logits is None:
        raise ModelOutputError(
            what=f"packing cannot be checked: {type(model).__name__} returns neither loss nor logits for every token",
            why="packed rows and single rows are compared by one of them",
            fix="let forward return {'loss': ..., 'logits': ...}, or use split_by_length=True instead of packing",
        )
    own = labels[1:] if shifted else labels
    return _Result(loss, int(own.ne(IGNORED).sum()), logits, _compute_token_losses(logits, labels, shifted=shifted))


def _compute_token_losses(logits: Tensor | None, labels: Tensor, *, shifted: bool) -> Tensor | None:
    """Return the cross entropy of each token; None where labels are not classes."""
    if logits is None or labels.is_floating_point():
        return None
    if shifted:
        logits, labels = logits[:-1], labels[1:]
    if labels.numel() and int(labels.max()) >= logits.shape[-1]:
        return None
    return nn.functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="none")


def _move_to_device(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the batch on the model's device."""
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, dict(batch))


def _find_loss(outputs: Any) -> float | None:
    """Return the loss among a model's outputs, if it is one number."""
    if isinstance(outputs, Mapping):
        loss = outputs.get("loss")
    else:
        loss = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    return float(loss) if isinstance(loss, Tensor) and loss.numel() == 1 else None


def _find_logits(outputs: Any, tokens: int) -> Tensor | None:
    """Return the first output that has numbers for every token, as (tokens, classes)."""
    if isinstance(outputs, Mapping):
        found = [outputs.get("logits")]
    else:
        found = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    for each in found:
        if isinstance(each, Tensor) and each.dim() == 3 and each.shape[:2] == (1, tokens):
            return each[0].detach()
    return None


def _ignores_first_label(model: nn.Module, rows: Sequence[Mapping[str, Any]], packing: PackingCollator) -> bool:
    """Return whether the first label of a row does not count, as where each position predicts the next."""
    aligned = replace(packing, max_length=None, shifted=False)
    row = _select_first_rows(rows)[1][-1]
    batch = _remove_separators(aligned([{"labels": row["input_ids"], **row}]))  # type: ignore[arg-type]
    without = batch["labels"].clone()
    without[..., 0] = IGNORED
    if batch["labels"][0, 0] == IGNORED or without.eq(IGNORED).all():
        return True  # the two cases cannot be distinguished
    with preserve_state(model):
        losses = [
            _find_loss(model(**_move_to_device(model, {**batch, "labels": labels})))
            for labels in (batch["labels"], without)
        ]
    return losses[0] is None or losses[0] == losses[1]


def _takes_masks(model: Any) -> bool:
    """Return whether a mask can be tried. Attention windows are in a model's own mask, which another would replace."""
    config = getattr(unwrap_model(model), "config", None)
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention", "attention_window")]
    return "attention_mask" in list_forward_parameters(model) and not any(windows)


def _takes_num_items(model: Any) -> bool:
    return "num_items_in_batch" in list_forward_parameters(model) or takes_any_keyword(model)


def _choose_tolerance(model: nn.Module) -> Tolerance:
    """Return the tolerance that suits the arithmetic in use."""
    device = next((each.device for each in model.parameters()), accelerator.CPU)
    coarse = torch.is_autocast_enabled(device.type) or dtype_of(model) not in (torch.float32, torch.float64)
    return COARSE if coarse or accelerator.uses_tf32(device) else EXACT


def _is_close(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def _measure_distance(one: Tensor, other: Tensor) -> float:
    """Return the distance of logits, relative to how much they differ from class to class."""
    size = (other.float() - other.float().mean(-1, keepdim=True)).norm()
    return float((one.float() - other.float()).norm() / size.clamp(min=1e-12))
