"""Tiny models with PEFT's adapters. Every builder is deterministic and returns something fresh."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from tests.support import tiny


def load_peft() -> Any:
    """peft; what its import warns about is not ours to judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("peft")


def adapt(model: Any, kind: str, **settings: Any) -> Any:
    """A model with an adapter, by the name of its configuration in peft."""
    peft = load_peft()
    return tiny.seeded(lambda: peft.get_peft_model(model, getattr(peft, kind)(**settings)))


def lora(model: Any, task: str | None, *modules: str, **settings: Any) -> Any:
    settings = {"r": 2, "lora_alpha": 4, "lora_dropout": 0.0, **settings}
    return adapt(model, "LoraConfig", task_type=task, target_modules=list(modules), **settings)


def classifier(**settings: Any) -> Any:
    return lora(tiny.bert(dropout=0.0), "SEQ_CLS", "query", "value", **settings)


def causal(**settings: Any) -> Any:
    return lora(tiny.llama(), "CAUSAL_LM", "q_proj", "v_proj", **settings)


def with_embeddings() -> Any:
    return causal(modules_to_save=["embed_tokens", "lm_head"], ensure_weight_tying=False)


def two_adapters() -> Any:
    """Both are trained at once."""
    model = causal()
    settings = load_peft().LoraConfig(task_type="CAUSAL_LM", r=3, target_modules=["k_proj"])
    tiny.seeded(lambda: model.add_adapter("second", settings), seed=1)
    model.base_model.set_adapter(["default", "second"])
    return model


def prompt() -> Any:
    return adapt(tiny.llama(), "PromptTuningConfig", task_type="CAUSAL_LM", num_virtual_tokens=3)


def prefix() -> Any:
    return adapt(tiny.llama(), "PrefixTuningConfig", task_type="CAUSAL_LM", num_virtual_tokens=3)


def scaled() -> Any:
    modules = {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
    return adapt(tiny.llama(), "IA3Config", task_type="CAUSAL_LM", **modules)


def sequence_to_sequence() -> Any:
    return lora(tiny.t5(dropout=0.0), "SEQ_2_SEQ_LM", "q", "v")


def plain() -> Any:
    return lora(tiny.regression(), None, "inner")


# How it is built, and the rows it learns.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], list[dict[str, Any]]]]] = {
    "classifier": (classifier, tiny.classification_rows),
    "causal": (causal, tiny.language_rows),
    "dropout": (lambda: causal(lora_dropout=0.2), tiny.language_rows),
    "modules_to_save": (with_embeddings, tiny.language_rows),
    "sequence_to_sequence": (sequence_to_sequence, tiny.translation_rows),
    "plain module": (plain, tiny.regression_rows),
    "prompt": (prompt, tiny.language_rows),
    "prefix": (prefix, tiny.language_rows),
    "ia3": (scaled, tiny.language_rows),
    "two adapters": (two_adapters, tiny.language_rows),
}
