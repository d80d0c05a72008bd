"""Sample for permutation language modeling: sentences, predicted in a random order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..tokenizers import XLNET
from . import Sample, build_command
from .unigrams import BASELINE_MEANING, compute_unigram_perplexity, train_sample_tokenizer, write_lines

STYLE = replace(XLNET, pieces="wordpiece")  # from so few words, XLNet's own kind of tokenizer makes single letters


def write_sample(directory: Path) -> Sample:
    """Write sentences for the prediction of tokens by their position."""
    files = write_lines(directory)
    tokenizer = train_sample_tokenizer(files, STYLE)
    tokenizer.save_pretrained(directory / "tokenizer")
    words = build_command(
        files,
        f"--model_type xlnet --tokenizer_name {directory / 'tokenizer'}",
        "--config_overrides d_model=48,n_layer=2,n_head=2,d_head=24,d_inner=96",
        "--do_train --do_eval --do_predict --line_by_line --max_seq_length 32",
        "--num_train_epochs 2 --per_device_train_batch_size 16 --learning_rate 1e-2 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    baseline = compute_unigram_perplexity(files, tokenizer)
    return Sample(words, "perplexity", baseline, BASELINE_MEANING, lower_is_better=True)
