"""The checks of what is passed to `Trainer`, made before any data is read."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..core.choices import IntervalStrategy
from ..core.compiled_model import get_uncompiled
from ..core.errors import ConfigError, MetricError
from ..core.notices import note_once
from ..core.tree import has_length
from .from_transformers import WrongTypeError
from .validate import raise_problems

if TYPE_CHECKING:
    from .training_args import TrainingArguments


class NoSuchMetricError(MetricError, KeyError):
    """A metric that no evaluation returned (transformers raises KeyError here)."""

    def __str__(self) -> str:  # KeyError would print a repr
        return Exception.__str__(self)


class NoModelError(ConfigError, RuntimeError):
    """Neither a model nor a function that makes one (transformers raises RuntimeError here)."""


def check_types(is_replaced: Callable[[str], bool] = lambda method: False, **given: Any) -> None:
    """Raise if something passed to `Trainer` is of the wrong type. None is always accepted here.

    What only a method of a subclass reads is not checked: it may be anything. `is_replaced` returns whether a subclass
    replaces a method.
    """
    checks = {name: check for name, check in _TYPES.items() if name in given}
    problems = [
        problem
        for name, check in checks.items()
        if not is_left_to_subclass(name, is_replaced)
        for problem in check(name, given[name])
    ]
    raise_problems(problems)


def is_left_to_subclass(name: str, is_replaced: Callable[[str], bool]) -> bool:
    """Return whether a subclass may replace something passed to `Trainer` before it is read.

    >>> is_left_to_subclass("compute_loss_func", lambda method: method == "compute_loss")
    True
    """
    return name in _READERS and any(map(is_replaced, ("__init__", *_READERS[name])))


_LOADERS = ("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader", "_get_dataloader")
_EVALUATIONS = ("evaluate", "evaluation_loop", "prediction_loop", "predict")

# The methods that read what was passed. A subclass that replaces one of them may pass on something else.
_READERS: dict[str, tuple[str, ...]] = {
    "train_dataset": ("get_train_dataloader", "_get_dataloader"),
    "eval_dataset": ("get_eval_dataloader", "_get_dataloader", *_EVALUATIONS),
    "data_collator": _LOADERS,
    "model_init": ("call_model_init",),
    "compute_loss_func": ("compute_loss", "training_step"),
    "compute_metrics": _EVALUATIONS,
    "preprocess_logits_for_metrics": _EVALUATIONS,
    "optimizer": ("create_optimizer", "create_optimizer_and_scheduler"),
}


def _check_model_type(name: str, value: Any) -> Iterator[ConfigError]:
    if value is None or isinstance(value, nn.Module):
        return
    if isinstance(value, str):
        yield WrongTypeError(
            what=f"model={value!r} is a string",
            why="the trainer needs a torch.nn.Module, and does not load models by name",
            fix=f"pass AutoModelForSequenceClassification.from_pretrained({value!r}), or the class of your task",
        )
    elif isinstance(value, type):
        yield WrongTypeError(
            what=f"model is the class {value.__name__}, not a model",
            why="a class has no weights",
            fix=f"pass {value.__name__}(...), or model_init={value.__name__} to create it when training starts",
        )
    else:
        yield WrongTypeError(
            what=f"model is a {type(value).__name__}, not a torch.nn.Module",
            why="only a module has parameters to train",
            fix="pass the module itself; a function that makes one goes to model_init",
        )


def _check_function_type(name: str, value: Any) -> Iterator[ConfigError]:
    if value is not None and not callable(value):
        yield WrongTypeError(
            what=f"{name}={value!r} cannot be called" if len(repr(value)) < 60 else f"{name} cannot be called",
            why=f"a {type(value).__name__} is not a function",
            fix=f"pass the function itself: {_EXAMPLES[name]}",
        )


def _check_metrics_type(name: str, value: Any) -> Iterator[ConfigError]:
    """Check for a function. Names, pairs and streaming metrics are checked by `metrics/`."""
    streams = all(callable(getattr(value, method, None)) for method in ("update", "compute", "reset"))
    if not streams and not isinstance(value, (str, list, tuple, Mapping)):
        yield from _check_function_type(name, value)


_EXAMPLES = {
    "data_collator": "data_collator=DataCollatorWithPadding(tokenizer)",
    "compute_metrics": "compute_metrics=my_metrics, where my_metrics(prediction) returns {'accuracy': ...}",
    "preprocess_logits_for_metrics": "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)",
    "model_init": "model_init=lambda: MyModel(config)",
    "compute_loss_func": "compute_loss_func=my_loss, called as my_loss(outputs, labels, num_items_in_batch=...)",
}


def _check_data_type(name: str, value: Any) -> Iterator[ConfigError]:
    if isinstance(value, str):
        yield WrongTypeError(
            what=f"{name}={value!r} is a string",
            why="it would be read character by character",
            fix=f"load it first, for instance datasets.load_dataset('csv', data_files={value!r})['train']",
        )


def _check_sampler_type(name: str, value: Any) -> Iterator[ConfigError]:
    if value is None:
        return
    if isinstance(value, DataLoader):
        yield WrongTypeError(
            what=f"{name} is a DataLoader",
            why="a sampler yields indices of rows, a loader yields batches",
            fix="pass it as train_dataset=loader, which is used as it is",
        )
    elif isinstance(value, type) or not callable(getattr(value, "__iter__", None)):
        shown = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        yield WrongTypeError(
            what=f"{name} is {shown}, which yields no indices of rows",
            why="it is iterated over in each epoch",
            fix=f"pass an instance: {name}={_SAMPLERS[name]}",
        )
    elif name == "sampler" and isinstance(value, BatchSampler):
        yield WrongTypeError(
            what=f"sampler is a {type(value).__name__}, which yields batches",
            why="a sampler yields single rows, of which per_device_train_batch_size make a batch",
            fix="pass it as batch_sampler=",
        )


_SAMPLERS = {
    "sampler": "WeightedRandomSampler(weights, num_samples)",
    "batch_sampler": "BatchSampler(SequentialSampler(rows), batch_size=8, drop_last=False)",
}


def _check_callbacks_type(name: str, value: Any) -> Iterator[ConfigError]:
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        yield WrongTypeError(
            what=f"callbacks is a {type(value).__name__}, not a list",
            why="there can be several callbacks",
            fix="put it into a list: callbacks=[...]",
        )
        return
    for one in value:
        if inspect.isroutine(one) or isinstance(one, str):
            yield WrongTypeError(
                what=f"callbacks holds {getattr(one, '__name__', repr(one))}, which is not a callback",
                why="a callback has methods such as on_log; without them it would never be called",
                fix="subclass TrainerCallback and put an instance or the class into the list",
            )


def _check_optimizers_type(name: str, value: Any) -> Iterator[ConfigError]:
    if not (isinstance(value, (list, tuple)) and len(value) == 2):
        yield WrongTypeError(
            what=f"optimizers is a {type(value).__name__}, not a pair",
            why="it is an optimizer and a schedule, either of which may be None",
            fix="pass optimizers=(optimizer, None)",
        )


_TYPES: dict[str, Callable[[str, Any], Iterator[ConfigError]]] = {
    "model": _check_model_type,
    **dict.fromkeys(_EXAMPLES, _check_function_type),
    "compute_metrics": _check_metrics_type,
    "train_dataset": _check_data_type,
    "eval_dataset": _check_data_type,
    "sampler": _check_sampler_type,
    "batch_sampler": _check_sampler_type,
    "callbacks": _check_callbacks_type,
    "optimizers": _check_optimizers_type,
}


def check_model(model: Any, model_init: Any) -> None:
    """Raise unless exactly one of `model` and `model_init` is given."""
    if model is None and model_init is None:
        raise NoModelError(
            what="Trainer requires either a model or model_init argument",
            why="neither was given",
            fix="pass model=..., or model_init=lambda: ... to create a new one for every train()",
        )
    if model is not None and model_init is not None:
        raise NoModelError(
            what="Trainer requires either a model or model_init argument, but not both",
            why="model_init creates a new model when training starts, which would replace the one given",
            fix="leave one of them out",
        )


def check_quantization(model: nn.Module) -> None:
    """Raise if the model is quantized, and nothing in it can be trained.

    The attributes are those by which transformers marks a quantized model, and PEFT one with adapters.
    """
    inner = get_uncompiled(model)
    if not getattr(inner, "is_quantized", False):
        return
    quantizer = getattr(inner, "hf_quantizer", None)
    has_adapter = bool(getattr(inner, "_hf_peft_config_loaded", False) or getattr(inner, "peft_config", None))
    if not has_adapter and not getattr(quantizer, "is_qat_trainable", False):
        raise ConfigError(
            what=f"{type(inner).__name__} is quantized, and has no weights that can be trained",
            why="quantized weights have no gradient; an adapter on top of them has",
            fix="attach one: model = peft.get_peft_model(model, peft.LoraConfig())",
        )
    if inner is not model:
        raise ConfigError(
            what=f"{type(inner).__name__} is quantized and compiled",
            why="quantized layers cannot be trained through torch.compile",
            fix="pass the model as it was before torch.compile",
        )
    if quantizer is not None and not (
        getattr(quantizer, "is_trainable", True) or getattr(inner, "_hf_peft_config_loaded", False)
    ):
        method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", type(quantizer).__name__)
        raise ConfigError(
            what=f"{type(inner).__name__} is quantized with {getattr(method, 'value', method)}, and cannot be trained",
            why="no gradient passes through its layers",
            fix="quantize it with a method that supports training, such as bitsandbytes",
        )


def check_trainer(args: TrainingArguments, train_dataset: Any, eval_dataset: Any) -> None:
    """Raise if the arguments need a dataset, or its length, that is not available, or contradict each other."""
    if args.eval_strategy != IntervalStrategy.NO and eval_dataset is None:
        raise ConfigError(
            what=f"You have set `args.eval_strategy` to {args.eval_strategy} but you didn't pass an `eval_dataset` "
            "to `Trainer`",
            why="there is nothing to evaluate on",
            fix="pass eval_dataset=..., or set eval_strategy='no'",
        )
    if train_dataset is not None and args.max_steps <= 0 and not has_length(train_dataset):
        raise ConfigError(
            what="The train_dataset does not implement __len__, max_steps has to be specified",
            why="the number of steps and the learning rate schedule depend on the length of the data",
            fix="set max_steps, or give the data set a __len__",
        )
    steps = (getattr(args.accelerator_config, "gradient_accumulation_kwargs", None) or {}).get("num_steps")
    if steps is not None and steps != args.gradient_accumulation_steps:  # equal after derive.py, unless both are given
        raise ConfigError(
            what=f"The `AcceleratorConfig`'s `num_steps` is set but gradient_accumulation_steps is too: {steps} and "
            f"{args.gradient_accumulation_steps}",
            why="both are the number of micro-batches of an optimizer step",
            fix="leave one of them out",
        )


def check_order(
    args: TrainingArguments, train_dataset: Any, sampler: Any, batch_sampler: Any, *, is_mixture: bool = False
) -> None:
    """Raise if several things decide about the order of training rows or about batches."""
    given = [name for name, value in (("sampler=", sampler), ("batch_sampler=", batch_sampler)) if value is not None]
    if len(given) > 1:
        raise ConfigError(
            what="sampler= and batch_sampler= were both passed",
            why="both decide which rows make up a batch",
            fix="leave one of them out",
        )
    arguments = _list_order_arguments(args)
    if isinstance(train_dataset, DataLoader):
        cutting = [f"{name}=True" for name in ("split_by_length", "packing") if getattr(args, name)]
        _refuse_combination(
            "a DataLoader as train_dataset", [*given, *arguments, *cutting], "it has its own order and batches"
        )
    elif is_mixture:
        _refuse_combination(
            "a mixture of training sets", [*given, *arguments], "the weights of its sets decide its order"
        )
    elif given:
        if isinstance(train_dataset, IterableDataset):
            _refuse_combination(
                given[0], ["a training set that can only be iterated over"], "its rows have no indices"
            )
        cutting = ["split_by_length=True"] if batch_sampler is not None and args.ostinato.split_by_length else []
        _refuse_combination(given[0], [*arguments, *cutting], "both decide in which order rows are read")


def _list_order_arguments(args: TrainingArguments) -> list[str]:
    """Return the given arguments that decide about the order of rows."""
    asked = {
        "train_sampling_strategy": args.train_sampling_strategy != "random",
        "length_window": bool(args.ostinato.length_window),
        "max_tokens_per_batch": args.ostinato.max_tokens_per_batch is not None,
    }
    return [f"{name}={getattr(args, name)!r}" for name, is_set in asked.items() if is_set]


def _refuse_combination(one: str, others: list[str], why: str) -> None:
    if others:
        raise ConfigError(
            what=f"{one} with {' and '.join(others)}",
            why=why,
            fix=f"leave out {'one of the two' if len(others) == 1 else 'the one or the others'}",
        )


# The metrics of every evaluation, besides those of the metric function.
ALWAYS_MEASURED = ("loss", "runtime", "samples_per_second", "steps_per_second")


def check_metric_name(args: TrainingArguments, measured: Mapping[str | None, Iterable[str]]) -> None:
    """Raise if evaluations will not return `metric_for_best_model`. Only for metrics whose names are known.

    `measured` are the names of the metrics of each evaluation set; a single set has the key None.
    """
    name = args.metric_for_best_model
    if name is None or args.eval_strategy == IntervalStrategy.NO:
        return
    known = [] if None in measured else ["loss"]  # for several sets, the mean of their losses
    for one, metrics in measured.items():
        known += [metric if one is None else f"{one}_{metric}" for metric in (*ALWAYS_MEASURED, *metrics)]
    if name.removeprefix("eval_") not in known:
        near = difflib.get_close_matches(name.removeprefix("eval_"), known, n=1)
        without = "" if any(measured.values()) else "there is no compute_metrics, so "
        raise NoSuchMetricError(
            what=f"metric_for_best_model={name!r} will not be among the evaluation's metrics",
            why=f"{without}an evaluation measures {', '.join(known)}",
            fix=(f"did you mean {near[0]!r}? Otherwise " if near else "")
            + f"pass compute_metrics=..., returning {{{name.removeprefix('eval_')!r}: ...}}",
        )


def set_direction(args: TrainingArguments, directions: Mapping[str, bool]) -> None:
    """Set `greater_is_better` to the direction of the metric, if it was derived from the metric's name.

    Args:
        args: The arguments.
        directions: Whether a higher value is better, by the name of each metric.
    """
    wanted = (args.metric_for_best_model or "").removeprefix("eval_")
    better = directions.get(wanted)
    if better is None or args.greater_is_better is better:
        return
    if args._record.get_origin(args, "greater_is_better").kind == "derived":
        args._record.set_derived(args, "greater_is_better", better, f"the metric {wanted!r} defines it")
        args._record.record_values(args)
        note_once(f"metric_for_best_model={wanted!r}: the {'highest' if better else 'lowest'} counts as best")


def check_optimizer(optimizer: Any, model: Any) -> None:
    """Raise if the optimizer does not belong to the model."""
    if optimizer is not None and model is not None and not _has_parameters_of(optimizer, model):
        raise ConfigError(
            what="the optimizer holds no parameter of the model",
            why="its steps would update another model and not this one",
            fix="create it from model.parameters() of the model you pass, after the last change to the model",
        )


def check_optimizers(optimizers: Any, optimizer_cls_and_kwargs: Any, model_init: Any) -> None:
    """Raise if the optimizer is given twice, or is given before the model exists."""
    optimizer, _ = optimizers
    if optimizer is not None and optimizer_cls_and_kwargs is not None:
        raise ConfigError(
            what="Passing both `optimizers` and `optimizer_cls_and_kwargs` arguments is incompatible",
            why="both define the optimizer",
            fix="leave one of them out",
        )
    if model_init is not None and any(part is not None for part in optimizers):
        raise NoModelError(
            what="Passing a `model_init` is incompatible with providing the `optimizers` argument",
            why="model_init creates a new model when training starts, whose parameters are not in your optimizer",
            fix="subclass Trainer and override create_optimizer_and_scheduler, or pass optimizer_cls_and_kwargs",
        )


def _has_parameters_of(optimizer: Any, model: Any) -> bool:
    """Return whether an optimizer has any of the model's parameters; assumed of unknown types of optimizers."""
    groups = getattr(optimizer, "param_groups", None)
    if not groups or not any(True for _ in model.parameters()):
        return True
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(parameter) in own for group in groups for parameter in group["params"])
