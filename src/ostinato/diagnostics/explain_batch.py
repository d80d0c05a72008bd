"""`trainer.explain()`: send one batch through the model, record what happens to it, and leave everything unchanged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..arguments import usage_errors
from ..arguments.settings import BatchSettings
from ..core.compiled_model import get_uncompiled
from ..core.errors import DataError
from ..core.notices import silence_notices
from ..core.state_guard import can_restore
from ..core.tree import has_length
from ..data.batching.split_by_length import flatten_micro_batches
from ..data.columns import choose_columns, has_columns, list_forward_parameters
from ..data.dataset_errors import find_batch_fault
from ..data.eval_set import EvalSet, unwrap_eval_set
from ..data.mixture import Mixture, convert_to_mixture
from ..data.sizes import is_iterable
from ..engine.special_tokens import align_special_tokens
from ..evaluation import request
from ..evaluation.metric_spec import MetricSpec
from ..evaluation.step import compute_loss_alone, get_ignored_outputs, logits_of
from ..loss.counting import count_targets
from ..loss.model_outputs import BareTensorError
from . import describe_values, dispatch, metric_preview
from .batch_lint import lint_batch, lint_loss
from .batch_report import BatchReport, Call, DataSet, Finding, Loss, Stage
from .context import FailureContext
from .eval_dry_run import preserve_state
from .exception_notes import MemorySettings, get_callable_name
from .failures import explain_failure
from .hosts import ExplainHost
from .metric_errors import find_missing_labels
from .model_heads import find_certain_mistake
from .record_call import RecordedCall, build_finding, record_call

_READ_ONCE = "its rows can be read only once, and training needs them"


def explain_batch(trainer: ExplainHost, dataset: Any = None) -> BatchReport:
    """Explain one batch of `dataset`, else of the training set, else of the evaluation set."""
    source = choose_source(trainer, dataset)
    explainer = _BatchExplainer(trainer, source)
    with preserve_everything(trainer, dataset):
        # As `train` does, so that the batch is computed by the model that is trained.
        align_special_tokens(trainer.model, trainer.processing_class)
        explainer.run()
    return explainer.report()


# ---- restoring the state --------------------------------------------------------------------------------------------


@contextmanager
def preserve_everything(trainer: ExplainHost, dataset: Any = None) -> Iterator[None]:
    """Restore weights, buffers, modes, random streams, notices and the user's objects on exit."""
    sets = trainer.eval_dataset
    functions = [trainer.data_collator, trainer.preprocess_logits_for_metrics, *request.list_stateful_parts(trainer)]
    orders = [
        trainer.compute_loss_func,
        trainer.sampler,
        trainer.batch_sampler,
        getattr(trainer.model, "config", None),
        getattr(trainer.model, "generation_config", None),
    ]
    evaluated = sets.values() if isinstance(sets, dict) else [sets]
    data = [unwrap_eval_set(dataset), trainer.train_dataset, *map(unwrap_eval_set, evaluated)]
    with silence_notices(), preserve_state(trainer.model, *functions, *orders, trainer.loss_objective, trainer, *data):
        yield


# ---- stages ---------------------------------------------------------------------------------------------------------


@dataclass
class _BatchExplainer:
    """Runs a batch through the stages and records what happens to it."""

    trainer: ExplainHost
    source: Source
    found: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    stage: Stage = "data set"
    context: FailureContext | None = None
    labels: Any = None  # of the evaluated batch
    asked: MetricSpec = field(default_factory=MetricSpec)
    batch: Any = None
    loader: Any = None

    @property
    def settings(self) -> BatchSettings:
        return BatchSettings.of(self.trainer.args)

    def run(self) -> None:
        """Run the stages until one fails, and record why."""
        stages: list[tuple[Stage, Callable[[], None]]] = [
            ("data set", self._describe_data),
            ("batch", self._describe_batch),
            ("forward", self._call_model),
            ("evaluation", self._evaluate),
            ("metrics", self._choose_metrics),
        ]
        for self.stage, run_stage in stages:
            try:
                run_stage()
            except _Stop:
                return
            except Exception as error:
                self.findings.append(self._build_finding(error))
                return

    def report(self) -> BatchReport:
        return BatchReport(model=self.trainer._model_name, findings=tuple(self.findings), **self.found)

    def _build_finding(self, error: Exception) -> Finding:
        if self.context is not None:
            memory = MemorySettings(self.settings.train_batch_size, None)
            error = explain_failure(error, self.context, "in the first batch", memory)
        return build_finding(error, self.stage)

    # ---- data set and batch

    def _describe_data(self) -> None:
        dataset = self.source.dataset
        inner: Any = dataset.dataset if isinstance(dataset, DataLoader) else dataset
        inner = convert_to_mixture(inner) if self.source.is_training else inner
        readable = can_reread(dataset)
        rows = read_rows(inner) if readable else []
        note = "" if readable else f"explain() stops here: {_READ_ONCE}."
        if readable and rows and not isinstance(rows[0], Mapping):
            note = f"Its rows are of type {type(rows[0]).__name__}, not dicts: the collator names the columns."
        choice, parameters = self._choose_columns(inner, rows), list_forward_parameters(self.trainer.model)
        dicts = [row for row in rows if isinstance(row, Mapping)]
        self.found["data"] = DataSet(
            name=self.source.name,
            kind=describe_dataset(dataset, inner),
            rows=len(inner) if has_length(inner) else None,
            columns=tuple(describe_values.describe_columns(dicts, choice, parameters)),
            note=note,
        )
        if not readable:
            raise _Stop

    def _choose_columns(self, dataset: Any, rows: list[Any]) -> Any:
        trainer = self.trainer
        trainer._set_signature_columns_if_needed()
        ours = not isinstance(self.source.dataset, DataLoader)
        return choose_columns(
            dataset if has_columns(dataset) else [merge_columns(rows)],
            trainer._signature_columns or [],
            removes=ours and self.settings.removes_columns,
            model_name=trainer._model_name,
        )

    def _describe_batch(self) -> None:
        trainer = self.trainer
        self.loader = self.source.loader()
        parts = flatten_micro_batches([read_first_batch(self.loader)])
        self.batch = parts[0]
        mistake = find_batch_fault(self.batch, trainer.data_collator)
        if mistake is not None:
            raise mistake
        collate = getattr(self.loader, "collate_fn", None) if isinstance(self.source.dataset, DataLoader) else None
        packs = self.source.is_training and self.settings.packs
        self.found["batch"] = describe_values.describe_batch(
            self.batch,
            collator="packing=True" if packs else get_callable_name(collate or trainer.data_collator),
            kept=[
                one.name for one in self.found["data"].columns if one.kept and one.kind != describe_values.BY_TRANSFORM
            ],
            labels=trainer.label_names,
            micro_batches=len(parts),
        )

    # ---- forward, outputs, loss

    def _call_model(self) -> None:
        trainer = self.trainer
        self.context = context = dispatch.build_context(trainer, self.batch, self.loader, self.source.name, 0, 0)
        mistake = find_certain_mistake(context)
        if mistake is not None:
            raise mistake
        shifts = trainer._has_shifted_labels(self.batch)  # may call the model
        with record_call(trainer.model) as seen:
            try:
                loss = self._compute_loss()
            finally:
                if seen.given is not None:
                    self.found["call"] = self._describe_call(seen)
                if seen.outputs is not None:
                    self.found["outputs"] = describe_values.describe_outputs(
                        seen.outputs, self._find_roles(seen.outputs)
                    )
        self.findings += lint_batch(context, shifts=shifts, tokenizer=trainer.processing_class)
        self.stage = "loss"
        if loss is None and self.source.is_training and isinstance(seen.outputs, Tensor):
            raise BareTensorError(seen.outputs)
        if loss is not None:
            self.found["loss"] = described = self._describe_loss(seen, loss, shifts=shifts)
            self.findings += filter(None, [lint_loss(described.value)])

    def _compute_loss(self) -> Tensor | None:
        """Return the loss of training or evaluation; an evaluation may have none."""
        trainer = self.trainer
        inputs = trainer._prepare_inputs(dict(self.batch))
        model = get_uncompiled(trainer._wrap_model(trainer.model, training=False))
        model.eval()
        with torch.no_grad(), trainer.precision.forward(trainer.model):
            if self.source.is_training:
                return compute_loss_alone(trainer, model, inputs)
            return trainer.prediction_step(model, inputs, True)[0]

    def _describe_call(self, seen: RecordedCall) -> Call:
        trainer, takes = self.trainer, list(list_forward_parameters(self.trainer.model))
        order = {name: place for place, name in enumerate(takes)}
        given = sorted(seen.given or (), key=lambda name: order.get(name, len(order)))
        precision = next((str(p.dtype).removeprefix("torch.") for p in trainer.model.parameters()), "no weights")
        mixed_precision = self.settings.mixed_precision
        return Call(
            model=trainer._model_name,
            device=str(trainer.strategy.device),
            precision=precision if mixed_precision == "no" else f"{precision} computed in {mixed_precision}",
            given=tuple(given),
            added=tuple(name for name in given if name not in self.batch and not name.startswith("[")),
            withheld=()
            if any(name.startswith("[") for name in given)
            else tuple(n for n in self.batch if n not in given),
            not_given=tuple(name for name in takes if name not in given),
            calls=seen.calls,
            trained=_find_trained_share(trainer),
        )

    def _find_roles(self, outputs: Any) -> dict[str, str]:
        """Return which outputs are the loss, and which are predictions."""
        names = describe_values.list_output_names(outputs)
        is_models = self.context is not None and self.context.own_loss
        if isinstance(outputs, Tensor):
            return {names[0]: "the loss" if outputs.dim() == 0 and is_models else "the predictions"}
        kept = {id(one) for one in logits_of(outputs, get_ignored_outputs(self.trainer.model), has_loss=True)}
        roles = {}
        for name, value in zip(names, outputs.values() if isinstance(outputs, Mapping) else outputs, strict=True):
            if id(value) in kept:
                roles[name] = "predictions"
            else:
                roles[name] = "the loss" if name in ("loss", "[0]") else "left out of the predictions"
        return roles

    def _describe_loss(self, seen: RecordedCall, loss: Tensor, *, shifts: bool) -> Loss:
        trainer = self.trainer
        overridden = trainer._is_overridden("compute_loss")
        if overridden:
            where = "the result of compute_loss"
        elif trainer.compute_loss_func is not None:
            where = f"{get_callable_name(trainer.compute_loss_func)}(outputs, labels)"
        elif trainer.label_smoother is not None:
            where = f"smoothed labels (label_smoothing_factor={self.settings.label_smoothing})"
        else:
            where = "outputs['loss']" if isinstance(seen.outputs, Mapping) else "outputs[0]"
            where = "the output" if isinstance(seen.outputs, Tensor) else where
        source = "the trainer" if where.startswith("smoothed") else trainer._name_loss_source()
        value = float(loss.detach().float().mean()) if isinstance(loss, Tensor) else None
        return Loss(where, source, value, _describe_mean(self.batch, shifts=shifts), shifts)

    # ---- evaluation and metrics

    def _evaluate(self) -> None:
        trainer, source = self.trainer, self.source
        other = choose_eval_source(trainer) if source.is_training and trainer.eval_dataset is not None else None
        if other is not None and can_reread(other.dataset):
            source, self.context = other, None
            self.loader = source.loader()
            self.batch = read_first_batch(self.loader)
            self.context = dispatch.build_context(trainer, self.batch, self.loader, source.name, 0, 0)
            mistake = find_certain_mistake(self.context)
            if mistake is not None:
                raise mistake
        assert self.context is not None
        evaluated = metric_preview.evaluate_batch(trainer, self.batch)
        rows = len(source.dataset) if has_length(source.dataset) else None
        self.labels, self.asked = evaluated.labels, request.get_requested_metrics(trainer, source.options)
        self.found["evaluation"] = metric_preview.describe_metric_inputs(
            trainer, evaluated, self.asked, data=source.name, rows=rows
        )
        if evaluated.labels is None and self.asked:
            mistake = find_missing_labels(self.context)
            self.findings += [build_finding(mistake, "evaluation")] if mistake is not None else []

    def _choose_metrics(self) -> None:
        self.found["metrics"] = metric_preview.suggest_metrics(self.trainer, self.labels, self.asked)


class _Stop(Exception):
    """Ends the explanation without a finding."""


# ---- descriptions ---------------------------------------------------------------------------------------------------


def _describe_mean(batch: Mapping[str, Any], *, shifts: bool) -> str:
    """Return what the loss of a batch is a mean over."""
    labels = batch.get("labels")
    count = count_targets(labels, shifted=shifts)
    rows = next((len(one) for one in batch.values() if isinstance(one, Tensor) and one.dim() > 0), 0)
    if count is None or not isinstance(labels, Tensor):
        return f"{rows} rows"
    if labels.dim() < 2:
        return f"{int(count)} labels, one per row"
    if labels.is_floating_point():
        return f"{int(count)} labels, {labels[0].numel()} per row"
    return f"{int(count)} labels that are not -100"


def _find_trained_share(trainer: ExplainHost) -> float:
    everything = sum(one.numel() for one in trainer.model.parameters())
    return trainer.get_num_trainable_parameters() / everything if everything else 1.0


_MAX_ROWS_READ = 8


@dataclass(frozen=True)
class Source:
    """Where a batch comes from."""

    name: str
    dataset: Any
    loader: Callable[[], Any]
    is_training: bool = False
    options: EvalSet | None = None


def choose_source(trainer: ExplainHost, dataset: Any) -> Source:
    """Return where to read the batch from: `dataset`, else the training set, else the evaluation set."""
    if isinstance(dataset, str):
        return choose_eval_source(trainer, dataset)
    if dataset is not None:
        options = dataset if isinstance(dataset, EvalSet) else None
        return Source(
            "data set", unwrap_eval_set(dataset), partial(trainer.get_eval_dataloader, dataset), options=options
        )
    if trainer.train_dataset is not None:
        return Source("training set", trainer.train_dataset, trainer.get_train_dataloader, is_training=True)
    if trainer.eval_dataset is None:
        raise usage_errors.no_train_dataset()
    return choose_eval_source(trainer)


def choose_eval_source(trainer: ExplainHost, name: str | None = None) -> Source:
    """Return the evaluation set of this name, the only one, or the first of several."""
    sets = trainer.eval_dataset
    if name is not None and (not isinstance(sets, dict) or name not in sets):
        raise usage_errors.no_such_evaluation_set(name, sets)
    if name is None and isinstance(sets, dict):
        name = next(iter(sets), None)
    prefix = "eval" if name is None else f"eval_{name}"
    chosen = sets if name is None or not isinstance(sets, dict) else sets[name]
    options = chosen if isinstance(chosen, EvalSet) else None
    return Source(
        request.name_evaluated_set("Evaluation", prefix, sets),
        unwrap_eval_set(chosen),
        partial(trainer.get_eval_dataloader, name),
        options=options,
    )


def can_reread(dataset: Any) -> bool:
    """Return whether a batch can be read without removing it from training."""
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if not is_iterable(dataset):
        return True
    if callable(getattr(dataset, "load_state_dict", None)):
        return True  # every pass starts at the beginning, unless a state is loaded
    return can_restore(dataset)


def read_first_batch(loader: Any) -> Any:
    """Return the first batch, read in this process: workers start slower than one batch is read."""
    before = loader.num_workers, loader.pin_memory
    loader.num_workers, loader.pin_memory = 0, False
    batches = iter(loader)
    try:
        return next(batches)
    except StopIteration:
        raise DataError(
            what="there is no batch to explain",
            why="the loader returned none",
            fix="check that the data set and its sampler have rows",
        ) from None
    finally:
        loader.num_workers, loader.pin_memory = before
        close = getattr(batches, "close", None)
        if callable(close):
            close()


def read_rows(dataset: Any) -> list[Any]:
    """Return some rows of the data set; none if they cannot be read, which the loader will report."""
    try:
        if isinstance(dataset, Mixture):
            return [part[0] for part in dataset.sets.values()]
        if is_iterable(dataset):
            return list(itertools.islice(iter(dataset), _MAX_ROWS_READ))
        return [dataset[index] for index in range(min(_MAX_ROWS_READ, len(dataset)))]
    except Exception:
        return []


def merge_columns(rows: list[Any]) -> Any:
    """Return a row with all columns that any of these rows has."""
    merged: dict[str, Any] = {}
    for row in rows:
        merged.update(row if isinstance(row, Mapping) else {})
    return merged


def describe_dataset(dataset: Any, inner: Any) -> str:
    if isinstance(dataset, DataLoader):
        return f"your DataLoader of a {type(inner).__name__}"
    if isinstance(inner, Mixture):
        return f"a mixture of {', '.join(inner.sets)}"
    return f"{type(inner).__name__}, a stream" if is_iterable(inner) else type(inner).__name__
