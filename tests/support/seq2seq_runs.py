"""Small models that read and write, and the plain program of transformers that trains them, whatever the task.

Eight rows are evaluated in one batch, after training: batches of ragged labels weigh otherwise there, the mean of ten
equal losses is not quite that loss, and an evaluation draws from the numbers that dropout is to have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ostinato.tasks.tokenizers import BART, T5, train_tokenizer
from tests.support.apis import guest
from tests.support.task_runs import plain_arguments

Pair = tuple[str, str]


def save_model(kind: str, pairs: Sequence[Pair], directory: Path, **more: Any) -> str:
    """A directory with a model of 16 units that has begun to learn some pairs, and a tokenizer made for it."""
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), 400, BART if kind == "bart" else T5)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ids |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    ids["decoder_start_token_id"] = tokenizer.eos_token_id if kind == "bart" else tokenizer.pad_token_id
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 2, "ffn_dim": 32}.items()
    }
    transformers.set_seed(3)
    if kind == "t5":
        config: Any = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, **ids, **more)
        model: Any = transformers.T5ForConditionalGeneration(config)
    elif kind == "marian":
        options = {"d_model": 16, "max_position_embeddings": 64, **sides, "forced_eos_token_id": None, **ids, **more}
        model = transformers.MarianMTModel(transformers.MarianConfig(**options))
    else:
        options = {"d_model": 16, "max_position_embeddings": 64, **sides, **ids, **more}
        options["forced_eos_token_id"] = tokenizer.eos_token_id
        model = transformers.BartForConditionalGeneration(transformers.BartConfig(**options))
    begin(model, tokenizer, pairs[:16])
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def begin(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> None:
    """So that what is written has words in common with what should be."""
    sources, targets = zip(*pairs, strict=True)
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    batch = tokenizer(list(sources), max_length=32, **options)
    labels = tokenizer(text_target=list(targets), max_length=16, **options)["input_ids"]
    labels[labels == tokenizer.pad_token_id] = -100
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(40):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def plain_program(
    model: str,
    train: Sequence[Pair],
    dev: Sequence[Pair],
    judge: Callable[[list[str], list[str]], Mapping[str, float]],
    *,
    prefix: str = "",
    longest: tuple[int, int, int] = (32, 16, 16),
    beams: int | None = None,
    pad: bool = False,
    ignore_padding: bool = True,
    forced: str | None = None,
    **tokenizer_options: Any,
) -> tuple[Any, dict[str, float]]:
    """What somebody who knows transformers would write. `longest`: of sources, targets, and targets to evaluate."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, **tokenizer_options)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(model)
    if forced is not None:
        network.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(forced)
    padding: Any = "max_length" if pad else False

    def features(pair: Pair, length: int) -> dict[str, Any]:
        made = tokenizer(prefix + pair[0], max_length=longest[0], padding=padding, truncation=True)
        labels = tokenizer(text_target=pair[1], max_length=length, padding=padding, truncation=True)["input_ids"]
        if pad and ignore_padding:
            labels = [-100 if number == tokenizer.pad_token_id else number for number in labels]
        return {**made, "labels": labels}

    def metric(prediction: Any) -> dict[str, float]:
        pad_id = tokenizer.pad_token_id
        sides = [np.where(ids == -100, pad_id, ids) for ids in (prediction.predictions, prediction.label_ids)]
        texts = [[text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)] for ids in sides]
        lengths = [int((row != pad_id).sum()) for row in sides[0]]
        result = {**judge(*texts), "gen_len": float(np.mean(lengths))}
        return {name: round(value, 4) for name, value in result.items()}

    with guest("transformers"):
        trainer = transformers.Seq2SeqTrainer(
            model=network,
            args=plain_arguments(
                1e-2,
                transformers.Seq2SeqTrainingArguments,
                num_train_epochs=2,
                per_device_eval_batch_size=16,
                predict_with_generate=True,
                generation_max_length=longest[2],
                generation_num_beams=beams,
            ),
            train_dataset=[features(pair, longest[1]) for pair in train],
            eval_dataset=[features(pair, longest[2]) for pair in dev],
            processing_class=tokenizer,
            compute_metrics=metric,
            data_collator=transformers.default_data_collator
            if pad
            else transformers.DataCollatorForSeq2Seq(
                tokenizer, model=network, label_pad_token_id=-100 if ignore_padding else tokenizer.pad_token_id
            ),
        )
        trainer.train()
        return trainer, trainer.evaluate()


SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1", "--learning_rate"),
    *("1e-2", "--report_to", "none", "--seed", "7", "--output_dir", "out", "--save_strategy", "no"),
    *("--per_device_eval_batch_size", "16", "--max_source_length", "32", "--max_target_length", "16"),
]
