"""Sample for masked language modeling: sentences with words hidden."""

from __future__ import annotations

from pathlib import Path

from ..tokenizers import BERT
from . import Sample, build_command, build_tiny_model_options
from .unigrams import BASELINE_MEANING, compute_unigram_perplexity, train_sample_tokenizer, write_lines


def write_sample(directory: Path) -> Sample:
    """Write sentences for the prediction of hidden tokens."""
    files = write_lines(directory)
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96
        ),
        "--do_train --do_eval --do_predict --line_by_line --max_seq_length 32",
        "--num_train_epochs 3 --per_device_train_batch_size 16 --learning_rate 5e-3 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    baseline = compute_unigram_perplexity(files, train_sample_tokenizer(files, BERT))
    return Sample(words, "perplexity", baseline, BASELINE_MEANING, lower_is_better=True)
