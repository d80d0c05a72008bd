"""Ragged text: real tokens per second when rows are of very different lengths.

    python benchmarks/ragged_text.py                     # a small BERT that classifies
    python benchmarks/ragged_text.py --model gpt2        # a small language model; also packing

Every contestant takes the same steps over the same 32 rows each, in data-set order: transformers and Ostinato pad
them, *split* is Ostinato with split_by_length=True, *packed* with packing=True. *budget* goes over the same rows in
batches of others, with max_tokens_per_batch. Contestants take turns round by round, each in a process of its own; what
counts is the ratio of real tokens per CPU second to transformers in the same round.
The losses of every step are compared too, with those of Ostinato: transformers counts labels that GPT-2 never
predicts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

BATCH, STEPS, VOCAB = 32, 16, 8000
OURS = {
    "ostinato": {},
    "split": {"split_by_length": True},
    "packed": {"packing": True},
    "budget": {"max_tokens_per_batch": 2048, "train_sampling_strategy": "random"},
}


def rows(kind: str) -> list[dict[str, Any]]:
    """Lengths as text has them: most rows short, some very long."""
    chance = random.Random(7)
    found = []
    for number in range(BATCH * STEPS):
        length = min(256, max(4, round(chance.lognormvariate(3.6, 0.9))))
        ids = [chance.randrange(5, VOCAB) for _ in range(length)]
        found.append({"input_ids": ids, "labels": number % 2 if kind == "bert" else ids})
    return found


def pad(batch: list[dict[str, Any]]) -> dict[str, Any]:
    import torch

    width = max(len(row["input_ids"]) for row in batch)

    def filled(name: str, filler: int) -> Any:
        return torch.tensor([row[name] + [filler] * (width - len(row[name])) for row in batch])

    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in batch])
    per_row = isinstance(batch[0]["labels"], int)
    labels = torch.tensor([row["labels"] for row in batch]) if per_row else filled("labels", -100)
    return {"input_ids": filled("input_ids", 0), "attention_mask": mask, "labels": labels}


def build(kind: str) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    if kind == "bert":
        sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 512}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=VOCAB, **sizes, **off))
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=128, n_layer=4, n_head=2, bos_token_id=0, eos_token_id=0, **off
    )
    return transformers.GPT2LMHeadModel(config)


def contest(name: str, kind: str) -> dict[str, Any]:
    import importlib

    library = importlib.import_module("ostinato" if name in OURS else "transformers")
    model, data = build(kind), rows(kind)
    with tempfile.TemporaryDirectory() as out:
        args = library.TrainingArguments(
            output_dir=out, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=1e-4, logging_steps=1,
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
            **{"train_sampling_strategy": "sequential", **OURS.get(name, {})},
        )  # fmt: skip
        trainer = library.Trainer(model, args, train_dataset=data, data_collator=pad)
        started = time.process_time()
        trainer.train()
        spent = time.process_time() - started
    tokens = sum(len(row["input_ids"]) for row in data)
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return {"tokens_per_second": tokens / spent, "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["bert", "gpt2"], default="bert")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contestant:
        print("RESULT " + json.dumps(contest(given.contestant, given.model)))
        return
    names = ["transformers", "ostinato", "split", *(["packed"] if given.model == "gpt2" else []), "budget"]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for number in range(given.rounds):
        found = {}
        for name in names:
            command = [sys.executable, __file__, "--model", given.model, "--contestant", name]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
            found[name] = json.loads(line.removeprefix("RESULT "))
        for name in names:
            ratios[name].append(found[name]["tokens_per_second"] / found["transformers"]["tokens_per_second"])
        reference = found["ostinato"]["losses"]
        gaps = {
            name: max(abs(a - b) / abs(b) for a, b in zip(found[name]["losses"], reference, strict=True))
            for name in names
            if name != "budget"  # whose steps have other rows
        }
        compared = {name: f" (losses differ by {gap:.0e})" for name, gap in gaps.items()}
        shown = ", ".join(f"{name} {ratios[name][-1]:.2f}{compared.get(name, '')}" for name in names)
        print(f"round {number + 1}: {shown}")
    print("median: " + ", ".join(f"{name} {statistics.median(found):.2f}" for name, found in ratios.items()))


if __name__ == "__main__":
    main()
