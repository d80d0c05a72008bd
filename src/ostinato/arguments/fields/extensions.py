"""Arguments that transformers does not have; keyword-only, so that positions stay those of transformers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class ExtensionArguments:
    """What transformers has no argument for."""

    isolate_rng: bool = field(
        default=True,
        metadata={
            "help": "Keep evaluation, saving, logging and callbacks from drawing training's random numbers, and give "
            "every row that is read streams of its own. False shares them, exactly as transformers does."
        },
    )
    nonfinite_patience: int = field(
        default=10,
        metadata={
            "help": "A step with a NaN or infinite loss or gradient is skipped and named; after this many in a row "
            "training stops with an error. 0 stops at the first."
        },
    )
    checkpoint_layout: str = field(
        default="ostinato",
        metadata={
            "help": "transformers also writes the files by which transformers itself goes on from a checkpoint: "
            "optimizer.pt, scheduler.pt, rng_state.pth, training_args.bin.",
            "choices": ["ostinato", "transformers"],
        },
    )
    split_by_length: bool = field(
        default=False,
        metadata={
            "help": "Cut the rows of every optimizer step into micro-batches of similar length: the same rows, the "
            "same gradient, hardly any padding. The first step is checked."
        },
    )
    packing: bool = field(
        default=False,
        metadata={
            "help": "Lay the rows of a training batch end to end, without padding, for language models that keep them "
            "apart. The first rows are checked."
        },
    )
    skip_bad_rows: bool = field(
        default=False,
        metadata={
            "help": "Leave out training rows that cannot be read, and say which, instead of ending the run. "
            "trainer.skipped_rows lists them."
        },
    )
    length_window: int | None = field(
        default=None,
        metadata={
            "help": "With train_sampling_strategy=group_by_length, sort rows by length so many batches at a time "
            "instead of reading all lengths first; -1 chooses the number (32, growing to 1024). None or 0 groups as "
            "transformers does."
        },
    )
    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Training batches of as many rows of similar length as fit into this many tokens, padding "
            "included, on each device; per_device_train_batch_size is then not used."
        },
    )
    eval_memory_mb: int | None = field(
        default=64,
        metadata={
            "help": "Predictions, labels and inputs of an evaluation that take more MiB than this are kept in a "
            "temporary file that still looks like an array. None keeps everything in memory."
        },
    )
    rehearse: bool = field(
        default=False,
        metadata={
            "help": "Before the first step, try one training batch, two evaluation batches with the metric function, "
            "a save and a load, and leave no trace of them."
        },
    )
    peak_flops: float | None = field(
        default=None,
        metadata={
            "help": "Operations a second that one device can do at most, in the precision trained in: with "
            "include_num_input_tokens_seen, the share of it that is used is logged as train_mfu. Known of common "
            "accelerators."
        },
    )
    save_errors: str = field(
        default="warn",
        metadata={
            "help": "A checkpoint that cannot be written (disk full, I/O error): warn says so and training goes on to "
            "the next one; raise ends the run.",
            "choices": ["warn", "raise"],
        },
    )
    journal: bool = field(
        default=True,
        metadata={
            "help": "Write down what happens in the run, one JSON line per event, in events.jsonl in output_dir. "
            "`ostinato report` and the report at the end read it."
        },
    )
    write_report: bool = field(
        default=True,
        metadata={
            "help": "At the end of training write report.html into output_dir: one page, made from the journal, that "
            "needs no network."
        },
    )
