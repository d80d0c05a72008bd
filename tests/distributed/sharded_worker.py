"""One process of runs whose model may be sharded: `sharded_worker.py OUT SCENARIOS`.

`SCENARIOS` is JSON: for each name, the arguments of a run, and what is peculiar to it (see `train`). The first process
writes `OUT/NAME.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.tensor import DTensor

from ostinato import EMACallback, Trainer, TrainingArguments

WORLD, GLOBAL_BATCH, WORDS = int(os.environ.get("WORLD_SIZE", "1")), 8, 37


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + torch.tanh(self.inner(x)))


class Tied(nn.Module):
    """A small language model: the embedding is the output layer, and the loss divides by the targets of the step."""

    _no_split_modules = ["Layer", "Embedding"]

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, 16)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.head = nn.Linear(16, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids, labels=None, num_items_in_batch=None, **kwargs):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": loss / count, "logits": logits}


def make_rows(count: int) -> list[dict[str, Any]]:
    """Rows whose numbers of targets differ."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for index in range(count):
        ids = torch.randint(0, WORDS, (7,), generator=generator)
        labels = ids.clone()
        labels[: index % 5] = -100
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def train(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train in `out`; `from`: a checkpoint to resume from; `ema`: evaluate an average of the weights."""
    checkpoint, averages = options.pop("from", None), options.pop("ema", False)
    args = TrainingArguments(
        str(out),
        per_device_train_batch_size=GLOBAL_BATCH // WORLD // options.get("gradient_accumulation_steps", 1),
        **{
            "max_steps": 12,
            "learning_rate": 1e-2,
            "save_steps": 6,
            "eval_strategy": "steps",
            "eval_steps": 5,
            "logging_steps": 1,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "seed": 3,
            **options,
        },
    )
    callbacks = [EMACallback(decay=0.5)] if averages else []
    rows = make_rows(54)
    trainer = Trainer(Tied(), args, train_dataset=rows, eval_dataset=rows[:11], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=checkpoint)
    predicted = trainer.predict(rows[:11])
    trainer.save_model(str(out / "end"))
    history = trainer.state.log_history
    report = {
        "losses": [entry["loss"] for entry in history if "loss" in entry],
        "norms": [entry["grad_norm"] for entry in history if "grad_norm" in entry],
        "eval": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        "best": trainer.state.best_model_checkpoint and Path(trainer.state.best_model_checkpoint).name,
        "predicted": len(predicted.predictions),
        "divided": sum(isinstance(one, DTensor) for one in trainer.model.parameters()),
        "parameters": len(list(trainer.model.parameters())),
    }
    if trainer.is_world_process_zero():
        state = load_file(out / "end" / "model.safetensors")
        numbers = b"".join(state[name].numpy().tobytes() for name in sorted(state))
        report |= {"weights": hashlib.sha256(numbers).hexdigest(), "names": sorted(state)}
        report["files"] = sorted(os.listdir(out / "checkpoint-12"))
    return report


def train_adapter(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train a LoRA adapter of a transformers model; `from`: a checkpoint to resume from."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    checkpoint = options.pop("from", None)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=WORDS))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.0))
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in make_rows(32)]
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "learning_rate": 1e-2}
    args = TrainingArguments(
        str(out), per_device_train_batch_size=GLOBAL_BATCH // WORLD, max_steps=6, save_steps=3, **quiet, **options
    )
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(out / "end"))
    report: dict[str, Any] = {"losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}
    if trainer.is_world_process_zero():
        state = load_file(out / "end" / "adapter_model.safetensors")
        report["weights"] = {name: value.tolist() for name, value in state.items()}
    return report


def generate(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the texts that a model generates before, in and after training.

    They are as long as it takes, which differs from row to row.
    """
    from transformers import T5Config, T5ForConditionalGeneration

    from ostinato import Seq2SeqTrainer, Seq2SeqTrainingArguments

    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS,
            d_model=16,
            d_kv=8,
            d_ff=16,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            dropout_rate=0.0,
            initializer_factor=2.0,
        )
    )
    model.generation_config.max_length = 9
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in make_rows(24)]
    seen: list[Any] = []

    def keep(prediction: Any) -> dict[str, float]:
        seen.append(prediction.predictions.tolist())
        return {}

    args = Seq2SeqTrainingArguments(
        str(out),
        predict_with_generate=True,
        per_device_train_batch_size=GLOBAL_BATCH // WORLD,
        per_device_eval_batch_size=2,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    trainer = Seq2SeqTrainer(model, args, train_dataset=rows, eval_dataset=rows[:7], compute_metrics=keep)
    before = trainer.predict(rows[:7]).predictions.tolist()
    trainer.train()
    after = trainer.predict(rows[:7]).predictions.tolist()
    return {"before": before, "in training": seen[1:-1], "after": after}


class Regression(nn.Module):
    """A head whose weight has one row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 7), nn.Linear(7, 1)

    def forward(self, x, labels):
        logits = self.head(torch.tanh(self.body(x))).squeeze(-1)
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


def train_regression(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train a model with a weight of one row, which some processes hold nothing of."""
    generator = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=generator), "labels": torch.tensor(float(n % 3))} for n in range(32)]
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    args = TrainingArguments(
        str(out),
        per_device_train_batch_size=GLOBAL_BATCH // WORLD,
        max_steps=6,
        learning_rate=1e-2,
        **quiet,
        **options,
    )
    trainer = Trainer(Regression(), args, train_dataset=rows)
    trainer.train()
    return {"losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}


KINDS = {"regression": train_regression, "adapter": train_adapter, "generate": generate}


def main(out: Path, scenarios: dict[str, Any]) -> None:
    out.mkdir(exist_ok=True)
    for name, options in scenarios.items():
        report = KINDS.get(name, train)(out / name, options)
        if int(os.environ.get("RANK", "0")) == 0:
            (out / f"{name}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
