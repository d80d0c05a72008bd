"""transformers and ostinato on the same device: the same events, numbers and weights, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import check_parity
from tests.support.pretend_device import PRETENDED_NAME

pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("device")

SIZES: dict[str, Any] = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "max_steps": 5}

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "an optimizer that is not fused": {"optim": "adamw_torch", "weight_decay": 0.1},
    "sgd with momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "adafactor": {"optim": "adafactor"},
    "accumulation": {"gradient_accumulation_steps": 2},
    "strict clipping": {"max_grad_norm": 0.01},
    "no clipping": {"max_grad_norm": 0.0},
    "cosine with warmup": {"lr_scheduler_type": "cosine", "warmup_steps": 2},
    "bf16": {"bf16": True},
    "bf16 and accumulation": {"bf16": True, "gradient_accumulation_steps": 2},
    "fp16": {"fp16": True},
    "fp16 and accumulation": {"fp16": True, "gradient_accumulation_steps": 2},
    "fp16 without clipping": {"fp16": True, "max_grad_norm": 0.0},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 2, "isolate_rng": False},
    "evaluation in bf16": {"eval_strategy": "steps", "eval_steps": 2, "bf16_full_eval": True, "isolate_rng": False},
    "evaluation kept on the device": {"eval_strategy": "steps", "eval_steps": 5, "eval_accumulation_steps": 1},
    "saving": {"save_strategy": "steps", "save_steps": 2},
    "the best at the end": {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "load_best_model_at_end": True,
        "isolate_rng": False,
    },
    "workers": {"dataloader_num_workers": 1},
    "memory that is not pinned": {"dataloader_pin_memory": False},
    "logs of two steps": {"logging_steps": 2},
    "smoothed labels": {"label_smoothing_factor": 0.1},
    "an empty cache": {"torch_empty_cache_steps": 1},
    "loss of the average token": {"average_tokens_across_devices": False},
}
HALF = {"bf16", "fp16", "bf16_full_eval"}
OWN = {"isolate_rng"}  # arguments that only ostinato knows

MODELS = {
    "mlp": (lambda: tiny.regression(dropout=0.2), tiny.regression_rows),
    "bert": (tiny.bert, tiny.classification_rows),
    "llama": (tiny.llama, tiny.language_rows),
}
ACCUMULATED = [name for name in SETTINGS if "accumulation" in name]
CASES = [
    *[("mlp", name) for name in SETTINGS if name != "smoothed labels"],
    *[("bert", name) for name in SETTINGS if name not in ACCUMULATED],  # differs on a CPU too
    *[("llama", name) for name in ACCUMULATED],
]


def fit(api: Api, model: str, setting: str) -> Any:
    build, make_rows = MODELS[model]
    given = SETTINGS[setting]
    arguments = {name: value for name, value in given.items() if name not in OWN}
    own = {name: value for name, value in given.items() if name in OWN}
    trainer = {"eval_dataset": make_rows(10, seed=2)}
    built = api.fit(build(), make_rows(), trainer=trainer, **{**SIZES, **arguments}, **api.ours(**own))
    return str(next(built.model.parameters()).device)


@pytest.mark.parametrize(("model", "setting"), CASES)
def test_parity(device: torch.device, model: str, setting: str) -> None:
    if device.type == PRETENDED_NAME and HALF & SETTINGS[setting].keys():
        pytest.skip("transformers refuses half precision on a device that it does not know by name")
    theirs, ours = check_parity(lambda api: fit(api, model, setting))
    assert theirs.result == ours.result == str(device)
