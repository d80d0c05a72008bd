"""Sample for generative question answering: the questions of extractive question answering, for a tiny model."""

from __future__ import annotations

from pathlib import Path

from . import Sample, build_command, build_tiny_model_options
from .question_answering_sample import write_questions


def write_sample(directory: Path) -> Sample:
    """Write texts with a question (who, where or for whom) about each."""
    files, baseline = write_questions(directory, names=4)  # copying a word it has never generated takes long to learn
    words = build_command(
        files,
        build_tiny_model_options("t5", d_model=64, num_layers=2, num_decoder_layers=2, num_heads=4, d_kv=16, d_ff=128),
        "--do_train --do_eval --do_predict --predict_with_generate --max_seq_length 48 --pad_to_max_length false",
        "--max_answer_length 8 --num_train_epochs 4 --per_device_train_batch_size 16 --learning_rate 3e-3",
        "--eval_strategy epoch --per_device_eval_batch_size 60 --metric_for_best_model f1 --logging_steps 20",
        "--report_to none",
    )
    return Sample(words, "eval_exact_match", baseline, "always giving the most frequent answer")
