"""float16 gradients that overflow: scales, skipped steps, rates and weights are those of transformers, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.apis import Api
from tests.support.digests import Digest
from tests.support.parity import check_parity
from tests.support.pretend_device import PRETENDED_NAME

pytest.importorskip("transformers")

ROWS_PER_BATCH, STEPS = 4, 9
LARGE = 1e4  # times the scale of 65536, which float16 cannot hold even after a few halvings

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "fused AdamW": {"optim": "adamw_torch_fused", "weight_decay": 0.1},
    "AdamW": {"optim": "adamw_torch", "weight_decay": 0.1},
    "SGD": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "RMSprop": {"optim": "rmsprop"},
    "Adafactor": {"optim": "adafactor"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 3},
    "no clipping": {"max_grad_norm": 0.0},
    "warmup, logs of four steps": {"lr_scheduler_type": "cosine", "warmup_steps": 3, "logging_steps": 4},
}


class Boosted(nn.Module):
    """Multiplies the loss of a row as the row says: the loss is finite, its scaled gradients are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, boost: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x).squeeze(-1)
        return {"loss": ((logits.float() - labels).square() * boost).mean(), "logits": logits}


def compute_digest(weight: torch.Tensor) -> tuple[Any, ...]:
    digest = Digest.of(weight)
    assert digest is not None
    return digest.facts


def make_rows(accumulation: int, overflows: tuple[int, ...]) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(3)
    rows = []
    for row in range(ROWS_PER_BATCH * accumulation * STEPS):
        step = row // (ROWS_PER_BATCH * accumulation) + 1
        is_large = step in overflows and row % (ROWS_PER_BATCH * accumulation) == 1
        x = torch.randn(4, generator=draw)
        rows.append({"x": x.tolist(), "boost": LARGE if is_large else 1.0, "labels": x.sum().item()})
    return rows


def fit(api: Api, overflows: tuple[int, ...], arguments: dict[str, Any]) -> Any:
    """Train, and return what was seen at the end of each step: scale, whether it was skipped, rates, weights."""
    seen: list[Any] = []

    class Watch(api.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            accelerator = made.accelerator
            rates = [group["lr"] for group in made.optimizer.param_groups]
            weights = [compute_digest(weight) for weight in model.parameters()]
            seen.append((accelerator.scaler.get_scale(), accelerator.optimizer_step_was_skipped, rates, weights))

    class InOrder(api.Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    torch.manual_seed(0)
    given = {"per_device_train_batch_size": ROWS_PER_BATCH, "max_steps": STEPS, "fp16": True, **arguments}
    rows = make_rows(given.get("gradient_accumulation_steps", 1), overflows)
    made = api.trainer(Boosted(), api.args(**given), cls=InOrder, callbacks=[Watch()], train_dataset=rows)
    api.train(made)
    return seen


CASES = [(name, "plain") for name in OPTIMIZERS]
CASES += [(name, setting) for name in ("fused AdamW", "AdamW") for setting in SETTINGS if setting != "plain"]


@pytest.mark.parametrize("overflows", [(2, 5), (1, 2, 3, 6)], ids=str)
@pytest.mark.parametrize(("optimizer", "setting"), CASES)
def test_parity(device: torch.device, optimizer: str, setting: str, overflows: tuple[int, ...]) -> None:
    if device.type == PRETENDED_NAME:
        pytest.skip("transformers refuses half precision on a device that it does not know by name")
    arguments = {**OPTIMIZERS[optimizer], **SETTINGS[setting]}
    theirs, ours = check_parity(lambda api: fit(api, overflows, arguments))
    assert ours.result == theirs.result
    scales = [scale for scale, *_ in ours.result]
    lowered = [step for step, scale in enumerate(scales, 1) if scale < ([65536.0, *scales])[step - 1]]
    assert set(overflows) <= set(lowered), "the test makes no overflow"
