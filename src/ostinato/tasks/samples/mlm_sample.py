"""Sample for masked language modeling: sentences with words hidden."""

from __future__ import annotations

from pathlib import Path

from ..tokenizers import BERT
from . import Sample, command, tiny
from .unigrams import MEANING, trained_on, unigram_perplexity, write_lines


def make(directory: Path) -> Sample:
    """Write sentences for the prediction of hidden tokens."""
    files = write_lines(directory)
    words = command(
        files,
        tiny("bert", hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96),
        "--do_train --do_eval --do_predict --line_by_line --max_seq_length 32",
        "--num_train_epochs 3 --per_device_train_batch_size 16 --learning_rate 5e-3 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    baseline = unigram_perplexity(files, trained_on(files, BERT))
    return Sample(words, "perplexity", baseline, MEANING, lower_is_better=True)
