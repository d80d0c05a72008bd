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

    sample: bool = flag(False, "Run the whole recipe offline, with a tiny model on a small generated sample.")
    plan: bool = flag(False, "Read and encode the rows, print the training plan, and stop.")


@dataclass
class ModelArguments:
    """The model: by path or name, or by a config to train from scratch."""

    model_name_or_path: str | None = flag(None, "A directory with a model, or its name on the hub.")
    model_type: str | None = flag(None, "The type of a model to train from scratch, such as bert, gpt2, t5.")
    config_name: str | None = flag(
        None, "A config other than the model's, by path or name.", aliases=["--config_name_or_path"]
    )
    config_overrides: str | None = flag(None, "Config values to override, such as hidden_size=64,num_hidden_layers=2.")
    cache_dir: str | None = flag(None, "The directory for downloaded files.")
    model_revision: str = flag("main", "The version of the model: a branch, a tag or a commit.")
    token: str | None = flag(None, "The hub's access token, for models that are not public.")
    trust_remote_code: bool = flag(False, "Run code that comes with the model or dataset. Read it first.")
    dtype: str | None = flag(
        None,
        "The type of the weights when they are loaded: auto, bfloat16, float16, float32.",
        choices=["auto", "bfloat16", "float16", "float32"],
        aliases=["--torch_dtype"],
    )
    attn_implementation: str | None = flag(None, "The attention implementation: sdpa, eager, flash_attention_2.")
    low_cpu_mem_usage: bool = flag(False, "Accepted without effect: transformers loads weights without a second copy.")
    ignore_mismatched_sizes: bool = flag(False, "Replace a head of another size instead of raising an error.")

    @property
    def source(self) -> str:
        """Name of the model in messages."""
        return self.model_name_or_path or self.config_name or f"a new {self.model_type}"


@dataclass
class TokenizerArguments(ModelArguments):
    """The tokenizer: the model's, another one, or one trained on the rows."""

    tokenizer_name: str | None = flag(None, "A tokenizer other than the model's: a directory, a .json file or a name.")
    train_tokenizer: bool = flag(
        False, "Train a tokenizer on the training rows, of the kind that the model type uses."
    )
    vocab_size: int = flag(8000, "The maximum vocabulary size of --train_tokenizer.")
    pad_token: str | None = flag(None, "The pad token, for a tokenizer without one.")
    use_fast_tokenizer: bool = flag(True, "Use the fast tokenizer (of the `tokenizers` library) if there is one.")


@dataclass
class DataArguments:
    """Rows, and how many of them."""

    dataset_name: str | None = flag(None, "A dataset of the hub, or a directory that `datasets` has saved.")
    dataset_config_name: str | None = flag(None, "The configuration of the dataset.")
    train_file: str | None = flag(None, "Rows to train on: a csv, tsv, json, jsonl, parquet or txt file.")
    validation_file: str | None = flag(None, "Rows to evaluate on.")
    test_file: str | None = flag(None, "Rows to predict.")
    train_split_name: str | None = flag(None, "The split to train on, if not 'train'.")
    validation_split_name: str | None = flag(None, "The split to evaluate on, if not 'validation'.")
    test_split_name: str | None = flag(None, "The split to predict, if not 'test'.")
    validation_split_percentage: float | None = flag(
        None, "Without validation rows, evaluate on this percentage of the training rows, from their beginning."
    )
    max_train_samples: int | None = flag(None, "Train on at most this many rows, the first ones.")
    max_eval_samples: int | None = flag(None, "Evaluate on at most this many rows, the first ones.")
    max_predict_samples: int | None = flag(None, "Predict at most this many rows, the first ones.")


@dataclass
class EncodingArguments(DataArguments):
    """The encoding of rows before training."""

    preprocessing_num_workers: int | None = flag(None, "The number of processes that encode rows.")
    overwrite_cache: bool = flag(False, "Encode the rows again, even if they are in the cache.")


@dataclass
class TextArguments(EncodingArguments):
    """The tokenization of texts."""

    max_seq_length: int = flag(128, "The maximum length in tokens; longer texts are truncated.")
    pad_to_max_length: bool = flag(
        False, "Pad every row to --max_seq_length. `false` is faster: it pads every batch to its longest row."
    )
