"""The hyperparameters on a model card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .argument import get_default
from .extras import list_declarations, list_fields
from .secrets import is_secret
from .settings import OptimizerSettings

if TYPE_CHECKING:
    from .training_args import TrainingArguments

_SHOWN_ELSEWHERE = {
    "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "seed", "optim", "adam_beta1",
    "adam_beta2", "adam_epsilon", "lr_scheduler_type", "max_steps", "num_train_epochs", "bf16", "fp16", "use_cpu",
    "dataloader_num_workers", "metric_for_best_model", "greater_is_better", "eval_strategy", "eval_steps",
}  # fmt: skip


def collect_hyperparameters(args: TrainingArguments, train_batch_size: int) -> dict[str, Any]:
    """Return the usual hyperparameters under the names of model cards, and other arguments that were changed."""
    settings = OptimizerSettings.of(args)
    shown: dict[str, Any] = {
        "learning_rate": args.learning_rate,
        "train_batch_size": train_batch_size,
        "eval_batch_size": args.eval_batch_size,
        "seed": args.seed,
    }
    if args.world_size > 1:
        shown["num_devices"] = args.world_size
    if args.gradient_accumulation_steps > 1:
        shown["gradient_accumulation_steps"] = args.gradient_accumulation_steps
    total = train_batch_size * args.gradient_accumulation_steps * args.data_size
    if total != train_batch_size:
        shown["total_train_batch_size"] = total
    beta1, beta2 = settings.betas
    adam = f", betas ({beta1}, {beta2}), epsilon {settings.epsilon}" if "adam" in settings.name.value else ""
    shown["optimizer"] = f"{settings.name.value}{adam}"
    shown["lr_scheduler_type"] = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    shown["training_steps" if args.max_steps > 0 else "num_epochs"] = (
        args.max_steps if args.max_steps > 0 else args.num_train_epochs
    )
    if args.mixed_precision != "no":
        shown["mixed_precision"] = args.mixed_precision
    return {**shown, **_find_unusual(args)}


def _find_unusual(args: TrainingArguments) -> dict[str, Any]:
    """Return the other arguments that matter to the numbers, where they are not at their defaults."""
    defaults = {field.name: get_default(field) for field in list_fields(args).values()}
    return {
        name: value
        for name, declaration in list_declarations(args).items()
        if declaration.on_resume is not None and name not in _SHOWN_ELSEWHERE and not is_secret(name)
        if (value := getattr(args, name)) is not None and value != defaults[name] and value != {}
    }
