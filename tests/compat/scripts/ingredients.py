"""What the scripts here share: a tokenizer and models made on the spot, and a report of what happened."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainerCallback,
    set_seed,
)

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
WORDS = [
    "red",
    "green",
    "blue",
    "one",
    "two",
    "three",
    "cat",
    "dog",
    "bird",
    "runs",
    "sleeps",
    "sings",
    "good",
    "bad",
    "yes",
    "no",
]
SETTINGS: dict[str, Any] = {
    "output_dir": str(OUT),
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
    "per_device_train_batch_size": 4,
    "max_steps": 24,
    "learning_rate": 2e-3,
    "seed": 7,
}
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def tokenizer() -> PreTrainedTokenizerFast:
    """Words that are known, split at spaces."""
    special = ["<pad>", "<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
    )


def causal_model() -> LlamaForCausalLM:
    """Loaded from a directory: some trainers load it a second time, by name, as what to compare with."""
    set_seed(3)
    directory = OUT / "llama"
    LlamaForCausalLM(LlamaConfig(vocab_size=23, max_position_embeddings=64, **_special(), **SIZES)).save_pretrained(
        directory
    )
    return LlamaForCausalLM.from_pretrained(directory)


def reward_model() -> LlamaForSequenceClassification:
    set_seed(3)
    config = LlamaConfig(vocab_size=23, max_position_embeddings=64, num_labels=1, **_special(), **SIZES)
    return LlamaForSequenceClassification(config)


def bert(kind: str, directory: Path) -> str:
    """A directory with a BERT and its tokenizer, as libraries load them by name."""
    set_seed(3)
    make = {"encoder": BertModel, "masked": BertForMaskedLM, "classifier": BertForSequenceClassification}[kind]
    config = BertConfig(vocab_size=23, max_position_embeddings=64, pad_token_id=0, num_labels=1, **SIZES)
    make(config).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return str(directory)


def _special() -> dict[str, int]:
    return {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


def sentence(number: int, length: int = 6) -> str:
    """Words that follow one another by a rule a model can learn."""
    return " ".join(WORDS[(number + 3 * place) % len(WORDS)] for place in range(length))


class Witness(TrainerCallback):
    """Sees whose code takes the steps, and on which trainer's behalf."""

    def __init__(self) -> None:
        self.loops: set[str] = set()
        self.steps = 0
        self.trainer: Any = None  # for libraries that keep their trainer to themselves

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1
        frame = sys._getframe(1)
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module in ("ostinato.engine.loop", "transformers.trainer"):
                self.loops.add(module)
                local = frame.f_locals
                self.trainer = local.get("self", local.get("trainer"))
            frame = frame.f_back


def report(
    trainer: Any, witness: Witness, *, resumed: bool = False, history: list[dict[str, Any]] | None = None
) -> None:
    """Write down what the test wants to know; the history is the trainer's, unless there were several trainers."""
    OUT.mkdir(parents=True, exist_ok=True)
    told = {
        "classes": [f"{one.__module__}.{one.__qualname__}" for one in type(trainer).__mro__],
        "arguments": [f"{one.__module__}.{one.__qualname__}" for one in type(trainer.args).__mro__],
        "loops": sorted(witness.loops),
        "steps": witness.steps,
        "resumed": resumed,
        "history": trainer.state.log_history if history is None else history,
    }
    (OUT / "report.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
