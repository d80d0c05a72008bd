"""`Extras`: the arguments that transformers does not have."""

from __future__ import annotations

from dataclasses import dataclass

from ..argument import Range, argument
from ..resume_rules import change_length_window, change_numbers, change_rng_isolation, change_token_budget


@dataclass(kw_only=True)
class Extras:
    """Arguments that transformers does not have. The environment variable OSTINATO_DEFAULTS may set their defaults.

    They are not fields of `TrainingArguments`, so that they cannot collide with fields of its subclasses or of other
    dataclasses on the same command line; but it takes them by name, unless a subclass has a field of that name.

    Example:
        >>> from ostinato import Extras, TrainingArguments
        >>> TrainingArguments("out", split_by_length=True, use_cpu=True).split_by_length
        True
        >>> TrainingArguments("out", ostinato=Extras(split_by_length=True), use_cpu=True).split_by_length
        True
    """

    isolate_rng: bool = argument(
        True,
        help="Keep evaluation, saving, logging and callbacks from drawing training's random numbers, and give every "
        "row that is read random streams of its own. False: they are shared, exactly as in transformers.",
        on_resume=change_rng_isolation,
    )
    nonfinite_patience: int = argument(
        10,
        help="A step with a NaN or infinite loss or gradient is skipped and reported; after this many in a row "
        "training stops with an error. 0: it stops at the first.",
        number=Range(minimum=0, whole=True),
        on_resume=None,
    )
    checkpoint_layout: str = argument(
        "ostinato",
        help="transformers: also write the files from which transformers itself can resume (optimizer.pt, "
        "scheduler.pt, rng_state.pth, training_args.bin).",
        choices=("ostinato", "transformers"),
        on_resume=None,
    )
    shard: str | None = argument(
        None,
        help="full: divide weights, gradients and optimizer state among all processes; hybrid: among those of a host, "
        "with a copy on every host. Default: every process holds the whole model.",
        choices=("full", "hybrid"),
        on_resume=None,
    )
    split_by_length: bool = argument(
        False,
        help="Divide the rows of every optimizer step into micro-batches of similar length: the same rows, the same "
        "gradient, hardly any padding. The first step is checked.",
        on_resume=change_numbers,
    )
    packing: bool = argument(
        False,
        help="Concatenate the rows of a training batch without padding, for language models that keep them apart. "
        "The first rows are checked.",
        on_resume=change_numbers,
    )
    skip_bad_rows: bool = argument(
        False,
        help="Skip and report training rows that cannot be read, instead of ending the run. trainer.skipped_rows "
        "lists them.",
        on_resume=None,
    )
    length_window: int | None = argument(
        None,
        help="With train_sampling_strategy=group_by_length, sort rows by length within windows of this many batches "
        "instead of reading all lengths first. -1: chosen automatically (32, growing to 1024). None or 0: as in "
        "transformers.",
        number=Range(minimum=-1, whole=True),
        on_resume=change_length_window,
    )
    max_tokens_per_batch: int | None = argument(
        None,
        help="Fill each training batch with rows of similar length up to this many tokens per device, padding "
        "included; per_device_train_batch_size is then not used.",
        number=Range(minimum=1, whole=True),
        on_resume=change_token_budget,
    )
    eval_memory_mb: int | None = argument(
        64,
        help="Predictions, labels and inputs of an evaluation that need more MiB than this are kept in a temporary "
        "file that behaves like an array. None: everything stays in memory.",
        number=Range(minimum=0),
        allow_none=True,
        on_resume=None,
    )
    metrics_in_all_processes: bool = argument(
        False,
        help="With several processes, `evaluate` keeps predictions and calls `compute_metrics` in all of them. "
        "False: in the first, which tells the others what it returned.",
        on_resume=None,
    )
    rehearse: bool = argument(
        False,
        help="Before the first step, try one training batch, two evaluation batches with the metric function, a save "
        "and a load, and undo them.",
        on_resume=None,
    )
    peak_flops: float | None = argument(
        None,
        help="Peak operations per second of one device in the precision used. With include_num_input_tokens_seen, the "
        "share of it that is reached is logged as train_mfu. Default: known for common accelerators.",
        number=Range(above=0, finite=True),
        on_resume=None,
    )
    save_errors: str = argument(
        "warn",
        help="What happens when a checkpoint cannot be written (disk full, I/O error). warn: it is reported, and "
        "training continues to the next one. raise: the run ends.",
        choices=("warn", "raise"),
        on_resume=None,
    )
    journal: bool = argument(
        True,
        help="Write the events of the run to events.jsonl in output_dir, one line of JSON each. `ostinato report` and "
        "the report at the end read it.",
        on_resume=None,
    )
    write_report: bool = argument(
        True,
        help="At the end of training, write report.html to output_dir: one page, made from the journal, that needs no "
        "network.",
        on_resume=None,
    )
