"""A step takes at most the device's memory that it takes with transformers."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import run_live
from tests.support.pretend_device import PRETENDED_NAME, peak_memory, reset_peak_memory

pytest.importorskip("transformers")

MODELS = {
    "mlp": (tiny.regression, tiny.regression_rows),
    "bert": (tiny.bert, tiny.classification_rows),
    "llama": (tiny.llama, tiny.language_rows),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "fused": {"optim": "adamw_torch_fused"},
    "not fused": {"optim": "adamw_torch"},
    "adafactor": {"optim": "adafactor"},
    "accumulation": {"gradient_accumulation_steps": 4},
    "no clipping": {"max_grad_norm": 0.0},
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp16, accumulation, not fused": {"fp16": True, "gradient_accumulation_steps": 4, "optim": "adamw_torch"},
    "logs, evaluation": {"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1},
}
HALF = {"bf16", "fp16"}
CASES = [("mlp", name) for name in SETTINGS]
CASES += [("bert", "fused"), ("bert", "accumulation"), ("bert", "logs, evaluation"), ("llama", "fused")]


def measure(api: Api, model: str, arguments: dict[str, Any]) -> int:
    """Return the most memory that steps 3 to 5 take, with what the run keeps."""

    class Reset(api.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                reset_peak_memory()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            found.append(peak_memory() - before)

    found: list[int] = []
    gc.collect()
    before = torch.accelerator.memory_allocated()
    build, make_rows = MODELS[model]
    given = {"max_steps": 5, "logging_steps": 100, "per_device_train_batch_size": 4, **arguments}
    trainer = {"callbacks": [Reset()], "eval_dataset": make_rows(8, seed=2)}
    api.fit(build(), make_rows(), trainer=trainer, **given)
    return found[0]


@pytest.mark.parametrize(("model", "setting"), CASES)
def test_peak_of_a_step(pretended: Any, model: str, setting: str) -> None:
    if pretended.type == PRETENDED_NAME and HALF & SETTINGS[setting].keys():
        pytest.skip("transformers refuses half precision on a device that it does not know by name")
    peaks = {
        name: run_live(lambda api: measure(api, model, SETTINGS[setting]), name).result
        for name in ("transformers", "ostinato")
    }
    assert 0 < peaks["ostinato"] <= peaks["transformers"]
