"""Sample for filling in the middle: sentences without their middle."""

from __future__ import annotations

from pathlib import Path

from ..tokenizers import GPT
from . import Sample, build_command, build_tiny_model_options
from .unigrams import BASELINE_MEANING, compute_unigram_perplexity, train_sample_tokenizer, write_lines


def write_sample(directory: Path) -> Sample:
    """Write sentences for the prediction of their middle."""
    files = write_lines(directory)
    words = build_command(
        files,
        build_tiny_model_options("gpt2", n_embd=48, n_layer=2, n_head=2, n_positions=64),
        "--do_train --do_eval --do_predict --block_size 64",
        "--num_train_epochs 4 --per_device_train_batch_size 16 --learning_rate 3e-3 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    baseline = compute_unigram_perplexity(
        files, train_sample_tokenizer(files, GPT, keep_linebreaks=True), keep_linebreaks=True
    )
    return Sample(words, "perplexity", baseline, BASELINE_MEANING, lower_is_better=True)
