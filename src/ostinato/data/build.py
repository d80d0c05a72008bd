"""Build the loader for a data set of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, Sampler

from ..arguments import usage_errors
from ..arguments.settings import LoaderSettings
from ..core.calls import fit_arguments
from ..core.notices import note_once
from ..core.protocols import LoaderHost
from ..core.random import preserve_rng
from . import columns, loader
from .bad_rows import ReadableRowFinder, SkippingCollator, SkippingRows
from .batching.packing_check import choose_packing
from .batching.split_by_length import SplitCollator, find_pad_multiple
from .batching.token_budget import build_token_budget_sampler
from .eval_set import EvalSet
from .mixture import Mixture, convert_to_mixture
from .mixture_loss import SourceCollator
from .sizes import is_iterable
from .streams.stream_buckets import StreamWindows, build_stream_windows
from .user_loaders import check_loader, share_batch_sampler


def build_loader(
    trainer: LoaderHost,
    dataset: Any,
    description: str,
    batch_size: int,
    sampler_fn: Callable[[Any], Sampler[Any] | None] | None,
    *,
    is_training: bool,
) -> DataLoader[Any]:
    """Build the loader for a data set of any kind, with everything that the arguments request."""
    settings, own_collator = LoaderSettings.of(trainer.args), None
    skips = is_training and settings.skips_bad_rows
    if isinstance(dataset, EvalSet):
        own_collator, batch_size = dataset.data_collator, dataset.batch_size or batch_size
        dataset = dataset.dataset
    if isinstance(dataset, DataLoader):
        if skips:
            raise usage_errors.skip_bad_rows_with_loader()
        check_loader(dataset, settings, description, training=is_training)
        return dataset
    collator = trainer.data_collator if own_collator is None else own_collator
    dataset = convert_to_mixture(dataset) if is_training else dataset
    if isinstance(dataset, Mixture):
        dataset, collator = _remove_mixture_columns(trainer, dataset, description)
    elif columns.has_columns(dataset):
        dataset = trainer._remove_unused_columns(dataset, description=description)
    else:
        collator = trainer._get_collator_with_removed_columns(collator, description=description)
    if is_training and settings.splits_by_length:
        # All rows of an optimizer step are split together.
        collator = SplitCollator(collator, rows_at_once=batch_size)
        batch_size *= settings.accumulation
    elif is_training and settings.packs:
        collator = _build_packing_collator(trainer, dataset, collator)
    batch_sampler = _build_batch_sampler(trainer, dataset, collator, settings) if is_training else None
    has_order = batch_sampler is None and not is_iterable(dataset)
    sampler = _make_sampler(sampler_fn, dataset) if sampler_fn is not None and has_order else None
    if isinstance(dataset, Mixture):
        collator = SourceCollator(collator)
        dataset = dataset.replace_sets(lambda name, rows: SkippingRows(rows, name) if skips else rows, tagged=True)
    elif skips and not is_iterable(dataset):
        dataset = SkippingRows(dataset)
    if skips:
        # A process without rows would block the others. For a stream, the reader supplies the padding batch itself.
        alone = settings.world_size == 1 or is_iterable(dataset)
        collator = SkippingCollator(collator, None if alone else ReadableRowFinder(dataset))
    return loader.build_loader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=collator,
        settings=settings,
        training=is_training,
        description=description,
        batch_sampler=batch_sampler,
        windows=_choose_windows(trainer, settings) if is_training and is_iterable(dataset) else None,
    )


def _make_sampler(sampler_fn: Callable[..., Sampler[Any] | None], dataset: Any) -> Sampler[Any] | None:
    """Return the sampler of a data set. Until transformers 4.51, `_get_train_sampler` had no parameter."""
    return sampler_fn(*fit_arguments(sampler_fn, dataset))


def _choose_windows(trainer: LoaderHost, settings: LoaderSettings) -> StreamWindows | None:
    """Return the order in which the rows of a training stream are read; None for the stream's own order."""
    return build_stream_windows(
        settings,
        group=trainer._train_batch_size * settings.accumulation,
        input_name=find_input_name(trainer.processing_class),
    )


def _remove_mixture_columns(
    trainer: LoaderHost, mixture: Mixture, description: str
) -> tuple[Mixture, Callable[..., Any]]:
    """Return the mixture without the columns that the model does not take, and a collator for sets that keep them."""

    def remove_columns(name: str, part: Any) -> Any:
        known = columns.has_columns(part)
        return trainer._remove_unused_columns(part, description=f"{name!r} {description.lower()}") if known else part

    if all(map(columns.has_columns, mixture.sets.values())):
        return mixture.replace_sets(remove_columns), trainer.data_collator
    collator = trainer._get_collator_with_removed_columns(trainer.data_collator, description=description)
    return mixture.replace_sets(remove_columns), collator


def _build_packing_collator(trainer: LoaderHost, dataset: Any, collator: Callable[[list[Any]], Any]) -> Any:
    """Return the collator that concatenates rows, after a trial on the first rows of the data set."""
    if is_iterable(dataset):
        raise usage_errors.packing_with_stream()
    with preserve_rng():
        rows = [dataset[index] for index in range(min(4, len(dataset)))]
    note_once("packing=True: training rows are concatenated; data_collator is used in evaluation only")
    return choose_packing(trainer.model, rows, collator)


def _build_batch_sampler(trainer: LoaderHost, dataset: Any, collator: Any, settings: LoaderSettings) -> Any:
    """Return batches that have no fixed number of rows: the user's, or what fits into `max_tokens_per_batch`."""
    if trainer.batch_sampler is not None:
        return share_batch_sampler(trainer.batch_sampler, settings)
    if settings.max_tokens is None:
        return None
    if trainer._is_overridden("_get_train_sampler"):
        raise usage_errors.token_budget_with_own_sampler(settings.max_tokens, type(trainer).__name__)
    return build_token_budget_sampler(
        dataset,
        settings,
        input_name=find_input_name(trainer.processing_class),
        pad_to_multiple_of=find_pad_multiple(collator),
    )


def find_input_name(processing_class: Any) -> str:
    """Return the name of the column whose length is the length of a row."""
    names = getattr(processing_class, "model_input_names", None)
    return names[0] if names else "input_ids"
