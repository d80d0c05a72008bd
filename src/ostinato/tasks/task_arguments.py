"""Flags that all tasks share: of the command, of the model, of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def flag(default: Any, help: str, **more: Any) -> Any:
    """Return a field with a line of help; `more` goes to the option (`choices`, `aliases`)."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"help": help, **more})
    return field(default=default, metadata={"help": help, **more})


@dataclass
class CommandArguments:
    """Options of the command; --config FILE reads any of these options from a YAML or JSON file."""

    sample: bool = flag(False, "Run the whole recipe on a small sample made on the spot, with a tiny model, offline.")
    plan: bool = flag(False, "Read and encode the rows, say what training would do, and stop.")


@dataclass
class ModelArguments:
    """Model and tokenizer: by path or name, or by a config to train from scratch."""

    model_name_or_path: str | None = flag(None, "A directory with a model, or its name on the hub.")
    model_type: str | None = flag(None, "To train from scratch: the kind of model, such as bert, gpt2, t5.")
    config_name: str | None = flag(None, "A config other than the model's, by path or name.")
    config_overrides: str | None = flag(
        None, "Values of the config that are to be others, such as hidden_size=64,num_hidden_layers=2."
    )
    tokenizer_name: str | None = flag(None, "A tokenizer other than the model's: a directory, a .json file or a name.")
    train_tokenizer: bool = flag(False, "Train a tokenizer on the training rows, of the kind that the model likes.")
    vocab_size: int = flag(8000, "How many pieces --train_tokenizer makes at most.")
    pad_token: str | None = flag(None, "The token to pad with, for a tokenizer that has none.")
    cache_dir: str | None = flag(None, "Where what is downloaded is kept.")
    use_fast_tokenizer: bool = flag(True, "Use the tokenizer of the `tokenizers` library where there is one.")
    model_revision: str = flag("main", "The version of the model: a branch, a tag or a commit.")
    token: str | None = flag(None, "A token of the hub, for models that are not public.")
    trust_remote_code: bool = flag(False, "Run code that comes with the model or data set. Only if you have read it.")
    dtype: str | None = flag(
        None,
        "The type of the weights when they are loaded: auto, bfloat16, float16, float32.",
        choices=["auto", "bfloat16", "float16", "float32"],
        aliases=["--torch_dtype"],
    )
    attn_implementation: str | None = flag(None, "Which attention the model uses: sdpa, eager, flash_attention_2.")
    low_cpu_mem_usage: bool = flag(False, "Accepted and needless: transformers loads weights without a second copy.")
    ignore_mismatched_sizes: bool = flag(False, "Replace a head of another size instead of refusing the model.")

    @property
    def source(self) -> str:
        """Name of the model in messages."""
        return self.model_name_or_path or self.config_name or f"a new {self.model_type}"


@dataclass
class DataArguments:
    """Rows, and how many of them."""

    dataset_name: str | None = flag(None, "A data set of the hub, or a directory that `datasets` has saved.")
    dataset_config_name: str | None = flag(None, "Which configuration of the data set.")
    train_file: str | None = flag(None, "Rows to train on: a csv, tsv, json, jsonl, parquet or txt file.")
    validation_file: str | None = flag(None, "Rows to evaluate on.")
    test_file: str | None = flag(None, "Rows to predict.")
    train_split_name: str | None = flag(None, "The split of the data set to train on, if not 'train'.")
    validation_split_name: str | None = flag(None, "The split to evaluate on, if not 'validation'.")
    test_split_name: str | None = flag(None, "The split to predict, if not 'test'.")
    validation_split_percentage: float | None = flag(
        None, "Without rows to evaluate on, take so many percent from the beginning of the training rows."
    )
    max_train_samples: int | None = flag(None, "Train on the first so many rows.")
    max_eval_samples: int | None = flag(None, "Evaluate on the first so many rows.")
    max_predict_samples: int | None = flag(None, "Predict the first so many rows.")
    preprocessing_num_workers: int | None = flag(None, "How many processes encode the rows.")
    overwrite_cache: bool = flag(False, "Encode anew what an earlier run has encoded.")


@dataclass
class TextArguments(DataArguments):
    """The tokenization of texts."""

    max_seq_length: int = flag(128, "Longer texts are cut to so many tokens.")
    pad_to_max_length: bool = flag(
        False, "Pad every row to --max_seq_length, instead of every batch to its longest row, which is faster."
    )
