"""One process of runs of small language models in several layouts: `layout_worker.py OUT SCENARIOS`.

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
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.tensor import DTensor

from ostinato import FreezeCallback, GradientStatisticsCallback, Trainer, TrainingArguments

GLOBAL_BATCH, WORDS = 8, 38
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}


def build_model(kind: str) -> nn.Module:
    """Return a Llama: `untied`, `tied`, or with an `adapter`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, num_hidden_layers=2, vocab_size=WORDS, tie_word_embeddings=kind == "tied")
    model = LlamaForCausalLM(config)
    if kind != "adapter":
        return model
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=2, target_modules=["q_proj", "o_proj"], lora_dropout=0.0, init_lora_weights=False)
    return get_peft_model(model, adapter)


def load_divided(kind: str, folder: Path) -> nn.Module:
    """Return the untied Llama, divided before it is passed to the trainer: by transformers, or by the script."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import LlamaForCausalLM
    from transformers.distributed import DistributedConfig

    dist.is_initialized() or dist.init_process_group("gloo")
    if kind == "script":
        model: Any = build_model("untied")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if dist.get_rank() == 0:
        build_model("untied").save_pretrained(folder)
    dist.barrier()
    sizes = {"tp": {"tp_size": 2, "tp_plan": "auto"}, "fsdp": {"fsdp_size": dist.get_world_size()}}
    return LlamaForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(**sizes[kind]))


def make_rows(count: int) -> list[dict[str, Any]]:
    """Rows whose numbers of targets differ."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for index in range(count):
        ids = torch.randint(0, WORDS, (7,), generator=generator)
        labels = ids.clone()
        labels[: index % 5] = -100
        rows.append({"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)})
    return rows


def train(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train in `out`. `model`: which; `tensor_size`: how many processes have the same rows.

    `watched`: with an optimizer of its own, and callbacks that look at gradients and freeze a layer for a while.
    `from`: a checkpoint to resume from; `divided`: what divides the model before it is passed to the trainer.
    """
    kind, checkpoint = options.pop("model", "untied"), options.pop("from", None)
    divided, watched = options.pop("divided", None), options.pop("watched", False)
    world = int(os.environ.get("WORLD_SIZE", "1")) // options.pop("tensor_size", 1)
    args = TrainingArguments(
        str(out),
        per_device_train_batch_size=GLOBAL_BATCH // world // options.get("gradient_accumulation_steps", 1),
        per_device_eval_batch_size=3,
        **{
            "max_steps": 10,
            "learning_rate": 1e-3,
            "save_steps": 5,
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
    callbacks = (
        [FreezeCallback({"model.layers.0": 2}), GradientStatisticsCallback(1, by_layer=True)] if watched else []
    )
    rows = make_rows(44)  # the last batch of an epoch has four of eight
    if divided == "meta":  # the weights are in the first process alone
        with torch.device("cpu" if os.environ.get("RANK", "0") == "0" else "meta"):
            model = build_model(kind)
    else:
        model = build_model(kind) if divided is None else load_divided(divided, out.with_name(f"{out.name}-given"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3) if watched else None  # made before the model is divided
    trainer = Trainer(
        model, args, train_dataset=rows, eval_dataset=rows[:11], callbacks=callbacks, optimizers=(optimizer, None)
    )
    if watched:
        assert trainer.verify_resume(2).equal
    trainer.train(resume_from_checkpoint=checkpoint)
    predicted = trainer.predict(rows[:11])
    trainer.save_model(str(out / "end"))
    history = trainer.state.log_history
    report: dict[str, Any] = {
        "losses": [entry["loss"] for entry in history if "loss" in entry],
        "norms": [entry["grad_norm"] for entry in history if "grad_norm" in entry],
        "eval": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        "by layer": [
            {name: value for name, value in entry.items() if name.startswith(("grad_norm/", "updates_lost"))}
            for entry in history
        ],
        "predicted": len(predicted.predictions),
        "divided": sum(isinstance(one, DTensor) for one in trainer.model.parameters()),
    }
    if trainer.is_world_process_zero():
        [file] = (out / "end").glob("*.safetensors")
        state = load_file(file)
        numbers = b"".join(state[name].contiguous().numpy().tobytes() for name in sorted(state))
        report |= {"weights": hashlib.sha256(numbers).hexdigest(), "names": sorted(state)}
    return report


def main(out: Path, scenarios: dict[str, Any]) -> None:
    out.mkdir(exist_ok=True)
    for name, options in scenarios.items():
        report = train(out / name, options)
        if int(os.environ.get("RANK", "0")) == 0:
            (out / f"{name}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
