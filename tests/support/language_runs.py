"""Small language models with tokenizers of their own, lines, and a plain program of transformers over blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers

from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random
from ostinato.tasks.tokenizers import Style, train_tokenizer
from tests.support.apis import guest
from tests.support.task_runs import plain_arguments

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TINY = {
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "llama": {**_SMALL, "max_position_embeddings": 64, "attention_dropout": 0.1},
    "bert": _SMALL,
    "xlnet": {"d_model": 16, "n_layer": 1, "n_head": 2, "d_head": 8, "d_inner": 32},
}
SEED = 7
SHORT = [
    *("--per_device_train_batch_size", "8", "--logging_steps", "1", "--learning_rate", "1e-3", "--report_to", "none"),
    *("--seed", str(SEED), "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def lines(count: int, seed: int = 0) -> list[str]:
    """Sentences, each a line that ends."""
    numbers = create_random(seed)
    return [f"{build_sentence(list(SUBJECTS)[numbers.randrange(4)], numbers)}\n" for _ in range(count)]


def write_text(path: Path, texts: Sequence[str]) -> str:
    path.write_text("".join(texts), encoding="utf-8")
    return str(path)


def make_model(directory: Path, kind: str, style: Style, model_class: str, **tokenizer_facts: Any) -> str:
    """A directory with a small model and its tokenizer."""
    tokenizer = train_tokenizer(lines(200), 400, style)
    for name, value in tokenizer_facts.items():
        setattr(tokenizer, name, value)
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **TINY[kind], **ids)
    transformers.set_seed(3)
    getattr(transformers, model_class)._from_config(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def blocks_of(tokenizer: Any, texts: Sequence[str], length: int) -> list[dict[str, list[int]]]:
    """What a page of plain Python makes of texts: a thousand at a time, end to end, cut, the rest thrown away."""
    blocks = []
    for start in range(0, len(texts), 1000):
        ids = [token for text in texts[start : start + 1000] for token in tokenizer(text)["input_ids"]]
        whole = [ids[place : place + length] for place in range(0, len(ids) - length + 1, length)]
        blocks += [{"input_ids": block, "attention_mask": [1] * length} for block in whole]
    return blocks


def plain_run(
    load: Callable[[], Any], train: list[Any], dev: list[Any], *, collator: Any, metric: Any, **arguments: Any
) -> tuple[Any, dict[str, float]]:
    """transformers' Trainer, trained and evaluated; the model is made after seeding."""
    transformers.set_seed(SEED)
    model = load()
    with guest("transformers"):
        trainer = transformers.Trainer(
            model=model,
            args=plain_arguments(1e-3, **arguments),
            train_dataset=train,
            eval_dataset=dev,
            data_collator=collator,
            compute_metrics=metric,
            preprocess_logits_for_metrics=lambda logits, labels: _first(logits).argmax(-1),
        )
        trainer.train()
        return trainer, trainer.evaluate()


def _first(logits: Any) -> Any:
    return logits[0] if isinstance(logits, tuple) else logits
