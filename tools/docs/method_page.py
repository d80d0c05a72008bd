"""The page of methods, `docs/methods.md`: what each is for is read from the code, their groups are written here."""

from __future__ import annotations

import inspect

from ostinato import Seq2SeqTrainer, Trainer
from ostinato.compat.legacy_names import METHODS, REPLACEMENTS
from tools.docs.hook_page import HOOKS

# By group: methods, properties, and attributes that other code sets.
GROUPS: dict[str, str] = {
    "Training": "train call_model_init _inner_training_loop training_step get_batch_samples samples_at skipped_rows "
    "num_examples get_total_train_batch_size set_initial_training_values get_num_trainable_parameters",
    "Loss": "compute_loss compute_loss_func compute_loss_context_manager autocast_smart_context_manager "
    "can_return_loss label_smoother model_accepts_loss_kwargs loss_is_scaled_for_ga",
    "Evaluation and prediction": "evaluate predict evaluation_loop prediction_loop prediction_step "
    "_determine_best_metric _load_best_model",
    "Data and batches": "get_train_dataloader get_eval_dataloader get_test_dataloader _get_dataloader "
    "_get_train_sampler _get_eval_sampler model_columns _remove_unused_columns _set_signature_columns_if_needed "
    "_get_collator_with_removed_columns _prepare_inputs _prepare_input _prepare_context_parallel_inputs",
    "Optimizer and schedule": "create_optimizer_and_scheduler create_optimizer create_scheduler "
    "get_optimizer_cls_and_kwargs get_decay_parameter_names get_optimizer_group get_learning_rates _get_learning_rate "
    "_clip_grad_norm",
    "Logs": "log track log_metrics save_metrics metrics_format _maybe_log_save_evaluate store_flos floating_point_ops",
    "Saving and resuming": "save_model save_state verify_resume _save _save_checkpoint _save_optimizer_and_scheduler "
    "_save_rng_state _save_scaler _load_from_checkpoint _load_optimizer_and_scheduler _load_rng_state _get_output_dir",
    "Callbacks": "add_callback pop_callback remove_callback",
    "Model, devices and processes": "create_accelerator_and_postprocess _move_model_to_device _wrap_model "
    "place_model_on_device model_preparation_time is_local_process_zero is_world_process_zero get_tp_size get_cp_size "
    "get_sp_size tokenizer",
    "Looking ahead": "explain plan rehearse",
    "Hyperparameter search": "hyperparameter_search load_best_trial _hp_search_setup _report_to_hp_search "
    "_tune_save_checkpoint",
    "Seq2SeqTrainer alone": "load_generation_config _pad_tensors_to_max_len",
    "Hub": "push_to_hub create_model_card init_hf_repo _push_from_checkpoint push_in_progress hub_model_id",
}

# What the code does not say of a method in a docstring.
SAID_HERE: dict[str, str] = {
    "_get_collator_with_removed_columns": "Wrap a collator so that it leaves out the columns that `forward` does not "
    "take.",
    "_get_dataloader": "Make a loader of a data set, for the three methods above.",
    "_load_from_checkpoint": "Load the model's weights when a run is resumed.",
    "_load_optimizer_and_scheduler": "Load the state of optimizer and schedule when a run is resumed.",
    "_load_rng_state": "Load the random states when a run is resumed.",
    "_move_model_to_device": "Move the model to the device that computes.",
    "_prepare_input": "Move a tensor, or the tensors of a container, to the device.",
    "_remove_unused_columns": "Remove the columns that `forward` does not take from a `datasets.Dataset`.",
    "_save": "Write the weights, the configuration and the tokenizer into a directory.",
    "_save_optimizer_and_scheduler": "Write the state of optimizer and schedule into a checkpoint.",
    "_save_rng_state": "Write the random states into a checkpoint.",
    "_save_scaler": "Write the scale of float16 gradients into a checkpoint.",
    "can_return_loss": "Whether the model computes a loss without labels.",
    "hub_model_id": "The full name of the repository on the hub.",
    "label_smoother": "The loss with label smoothing, or None.",
    "loss_is_scaled_for_ga": "Whether `compute_loss` divides by the number of micro-batches itself.",
    "model_preparation_time": "The seconds that compiling and moving the model took before an evaluation.",
    "push_in_progress": "The last upload that was not waited for, or None.",
    "model_accepts_loss_kwargs": "Whether `forward` takes `num_items_in_batch`.",
    "place_model_on_device": "Whether the trainer moves the model to the device.",
}

INTRODUCTION = """\
# Every method of a Trainer

What each method and property is for, by subject. The page is made by `python -m tools.docs`; a test checks that
it names every public one.

- *call*: made to be called by you; *read*: an attribute or property.
- *override*: a [hook](hooks.md), which a subclass may replace. Many hooks can be called as well.
- *internal*: called by the library; it has the name that transformers gives it, for code that calls it.

The order in which a run calls them is drawn in [One batch](one-batch.md) and [One evaluation](one-evaluation.md).
"""

LEGACY = """\
## Names that only older code uses

These are not methods of the class, and are found when code asks for them.

"""

GONE = """\
## Names of transformers that are refused

Using one raises an error with these words. [Old argument names](argument-list.md#old-names) are on another page.

"""


def summarize(name: str) -> str:
    """Return the first sentence about a method."""
    if name in SAID_HERE:
        return SAID_HERE[name]
    owner = Trainer if hasattr(Trainer, name) else Seq2SeqTrainer
    member = inspect.getattr_static(owner, name)
    text = inspect.getdoc(member.fget if isinstance(member, property) else getattr(owner, name)) or ""
    return " ".join(text.split("\n\n")[0].split())


def classify(name: str, hooks: set[str]) -> str:
    """Return how a method is used."""
    if name in hooks:
        return f"[override](hooks.md#{name})"
    if name.startswith("_"):
        return "internal"
    return "call" if callable(getattr(Seq2SeqTrainer, name, None)) else "read"


def format_page() -> str:
    """Return the page as Markdown."""
    hooks = {name for group in HOOKS.values() for name in group}
    lines = [INTRODUCTION]
    for group, names in GROUPS.items():
        lines += [f"## {group}", "", "| name | what it does | use |", "|---|---|---|"]
        lines += [f"| `{name}` | {summarize(name)} | {classify(name, hooks)} |" for name in names.split()]
        lines.append("")
    lines += [LEGACY + ", ".join(f"`{name}`" for name in sorted(METHODS)) + ".", ""]
    lines += [GONE + "| name | why | instead |", "|---|---|---|"]
    lines += [f"| `{name}` | {why} | {fix} |" for name, (why, fix) in sorted(REPLACEMENTS.items())]
    return "\n".join(lines) + "\n"
