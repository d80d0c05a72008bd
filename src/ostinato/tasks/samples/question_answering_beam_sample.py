"""Sample for question answering by beam search: the questions of extractive question answering, for a tiny XLNet."""

from __future__ import annotations

from pathlib import Path

from . import Sample, build_command, build_tiny_model_options
from .question_answering_sample import write_questions


def write_sample(directory: Path) -> Sample:
    """Write texts with a question (who, where or for whom) that words of the text answer."""
    files, baseline = write_questions(directory)
    words = build_command(
        files,
        build_tiny_model_options(
            "xlnet", d_model=64, n_layer=2, n_head=4, d_head=16, d_inner=64, start_n_top=3, end_n_top=3
        ),
        "--do_train --do_eval --do_predict --max_seq_length 40 --doc_stride 8",
        "--num_train_epochs 4 --per_device_train_batch_size 16 --learning_rate 4e-3 --eval_strategy epoch",
        "--metric_for_best_model f1 --logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_exact_match", baseline, "always giving the most frequent answer")
