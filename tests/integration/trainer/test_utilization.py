"""`train_mfu`: the model's operations for real tokens, over what its devices could have done while it was trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import ostinato
from ostinato import trainer as trainer_module
from ostinato.core.device_peaks import find_device_peak
from ostinato.core.errors import ConfigError
from ostinato.core.state import TrainerState
from ostinato.progress.messages import format_closing
from tests.support.apis import Api

PEAK = 1e6  # operations a second: a device on which these models are a burden
REAL, PADDED = 5, 8  # tokens of a row


class Words(nn.Module):
    """100 parameters besides its embedding, said as transformers' models say it."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 10), nn.Linear(10, 10, bias=False)

    def num_parameters(self, *, exclude_embeddings: bool = False) -> int:
        return 100 if exclude_embeddings else 170

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        logits = self.head(self.embed(input_ids).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Telling(Words):
    """Says itself how much it computes."""

    def floating_point_ops(self, inputs: Any) -> int:
        return 1000 * len(inputs["labels"])


class Silent(Words):
    num_parameters = None  # type: ignore[assignment]


class Clock:
    """Two seconds for every step; the rest of a run takes no time."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


def rows() -> list[dict[str, Any]]:
    mask = torch.tensor([1] * REAL + [0] * (PADDED - REAL))
    return [{"input_ids": torch.full((PADDED,), n % 7), "attention_mask": mask, "labels": n % 3} for n in range(16)]


def logs(api: Api, monkeypatch: pytest.MonkeyPatch, model: nn.Module, **arguments: Any) -> list[dict[str, Any]]:
    clock = Clock()

    class Passing(ostinato.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer._run.started = clock.now

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.now += 2.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if args.eval_on_start:  # as if one of 50 s had just ended
                clock.now += 50.0
                trainer._run.ledger.evaluation += 50.0

    given = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 4, **arguments}
    args = api.args(**given)
    trainer: Any = api.trainer(model, args, train_dataset=rows(), eval_dataset=rows(), callbacks=[Passing()])
    monkeypatch.setattr(trainer_module, "time", clock)
    trainer.train()
    return trainer.state.log_history


COUNTED = {"include_num_input_tokens_seen": "non_padding", "peak_flops": PEAK}


def test_real_tokens_over_training_time(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of 4 rows: 40 real tokens in 4 s, 600 operations each, of a million a second."""
    found = logs(ours, monkeypatch, Words(), **COUNTED)
    per_second = 4 * REAL / 2
    assert [log["train_tokens_per_second"] for log in found if "loss" in log] == pytest.approx([per_second] * 2, 1e-3)
    assert [log["train_mfu"] for log in found if "loss" in log] == [round(6 * 100 * per_second / PEAK, 4)] * 2


def test_padding_counts_where_all_tokens_do(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    found = logs(ours, monkeypatch, Words(), include_num_input_tokens_seen="all", peak_flops=PEAK)
    assert found[0]["train_mfu"] == round(600 * 4 * PADDED / 2 / PEAK, 4)


def test_time_that_is_not_training_does_not_count(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    found = logs(ours, monkeypatch, Words(), **COUNTED, eval_on_start=True)
    last = [log for log in found if "loss" in log][-1]
    assert last["train_runtime"] > 200 and last["train_mfu"] == pytest.approx(600 * 4 * REAL / 2 / PEAK, rel=1e-2)


def test_a_model_that_says_itself(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 operations for a row of 8 tokens, of which 5 are real."""
    found = logs(ours, monkeypatch, Telling(), **COUNTED)
    assert found[0]["train_mfu"] == round(1000 / PADDED * 4 * REAL / 2 / PEAK, 4)


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        (Silent, COUNTED),
        (Words, {"include_num_input_tokens_seen": "all"}),  # nobody knows what this CPU can do
        (Words, {"peak_flops": PEAK}),
    ],
)
def test_nothing_is_said_where_something_is_not_known(
    ours: Api, monkeypatch: pytest.MonkeyPatch, model: Any, arguments: dict[str, Any]
) -> None:
    assert not any("train_mfu" in log for log in logs(ours, monkeypatch, model(), **arguments))


@pytest.mark.parametrize("peak", [0, -1.0, "312e12", float("inf")])
def test_a_peak_that_is_none(ours: Api, peak: Any) -> None:
    with pytest.raises(ConfigError, match="peak_flops"):
        ours.args(peak_flops=peak)


@pytest.mark.parametrize(
    ("name", "numbers", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA A100 80GB PCIe", "tf32", 156),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "bf16", None),  # it has no such units
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA GeForce RTX 4090", "fp16", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "fp16", None),
        ("NVIDIA GeForce RTX 4090 D", "fp16", None),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),
        ("Some other card", "fp32", None),
    ],
)
def test_known_devices(name: str, numbers: str, tera: float | None) -> None:
    assert find_device_peak(name, numbers) == (None if tera is None else tera * 1e12)


def test_it_is_in_the_last_line() -> None:
    state = TrainerState(
        global_step=4, max_steps=4, log_history=[{"train_mfu": 0.2}, {"train_mfu": 0.413}, {"loss": 1}]
    )
    assert format_closing(None, state, "1:05", "out") == "done in 1:05: MFU 41 %; results in out"
