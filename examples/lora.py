"""Adapt a model with LoRA: a few new weights learn something else, the old ones stay as they are.

    python examples/lora.py

A small language model first learns English (docstrings of Python's standard library); then an adapter teaches it
Python (their source). Read from the Python that runs this, so nothing is downloaded. Under a minute on one core.
Needs peft (`pip install peft`) besides transformers.
"""

import ast
import math
import sys
import sysconfig
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

from ostinato import Trainer, TrainingArguments, set_seed

try:
    from peft import LoraConfig, get_peft_model
except ImportError:
    sys.exit("This example needs peft, which is not installed: pip install peft")

BLOCK = 96


def load_blocks(take_english: bool, limit: int):
    """English or Python, in blocks of so many letters; a token is a byte."""
    text = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-d]*.py")):
        source = file.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(source)) if take_english else ()
        documented = (node for node in nodes if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)))
        text += filter(None, map(ast.get_docstring, documented)) if take_english else [source]
    line = "\n".join(text).encode()[: limit * BLOCK]
    rows = [{"input_ids": list(line[start : start + BLOCK])} for start in range(0, len(line) - BLOCK + 1, BLOCK)]
    rows = [{**row, "labels": row["input_ids"]} for row in rows]
    return [row for i, row in enumerate(rows) if i % 10], rows[::10]  # every tenth is held out


def make_model() -> LlamaForCausalLM:
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, max_position_embeddings=BLOCK, **size))


def fit(model, rows, name: str, epochs: float, rate: float) -> Trainer:
    """Train whatever of the model is not frozen, and save it."""
    args = TrainingArguments(
        output_dir=f"runs/lora/{name}",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=rate,
        logging_steps=50,
        save_strategy="no",
    )
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train()
    trainer.save_model()
    return trainer


def perplexity(trainer: Trainer, rows) -> float:
    return math.exp(trainer.evaluate(rows)["eval_loss"])


def main(blocks: int = 2500, epochs: float = 2) -> dict[str, float]:
    """Train, adapt, compare; returns the perplexities."""
    set_seed(42)
    (english, unseen_english), (python, unseen_python) = load_blocks(True, blocks), load_blocks(False, blocks)
    base = fit(make_model(), english, "base", epochs, rate=1e-2)
    result = {"english": perplexity(base, unseen_english), "python before": perplexity(base, unseen_python)}

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = get_peft_model(base.model, LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=targets))
    trainer = fit(adapted, python, "adapter", epochs, rate=1e-2)
    result["python after"] = perplexity(trainer, unseen_python)
    with adapted.disable_adapter():
        result["english without the adapter"] = perplexity(trainer, unseen_english)

    trained, everything = adapted.get_nb_trainable_parameters()
    sizes = {path.name: path.stat().st_size / 1e3 for path in Path("runs/lora").glob("*/*.safetensors")}
    print(f"\nPython: perplexity {result['python before']:.1f} before, {result['python after']:.1f} with the adapter,")
    print(f"which is {trained:,} of {everything:,} parameters ({trained / everything:.0%}).")
    print(f"English without it: {result['english without the adapter']:.1f}, as before: {result['english']:.1f}.")
    print("Saved: " + ", ".join(f"{name} of {size:.0f} kB" for name, size in sizes.items()) + ".")
    return result


if __name__ == "__main__":
    main()
