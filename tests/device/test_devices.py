"""A run on an accelerator: where things are, what is measured, and which random streams are touched."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.core import accelerator
from ostinato.core.random import RandomState, preserve_rng
from ostinato.journal.environment import describe_environment
from tests.support import tiny
from tests.support.pretend_device import peak_memory, set_pinned_memory

ROWS = [{"x": torch.full((3,), n / 40), "labels": n % 2} for n in range(40)]


class Noisy(nn.Module):
    """A model that draws from the device's stream in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        self.formats: list[torch.dtype] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x.to(self.layers[0].weight.dtype))
        self.formats.append(self.layers[0].weight.dtype)
        return {"loss": nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


def make_trainer(tmp_path: Path, callbacks: list[TrainerCallback] | None = None, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    given = {"max_steps": 6, "per_device_train_batch_size": 4, "save_strategy": "no", "logging_steps": 100}
    args = TrainingArguments(str(tmp_path), report_to="none", disable_tqdm=True, **{**given, **settings})
    return Trainer(Noisy(), args, train_dataset=ROWS, eval_dataset=ROWS[:8], callbacks=callbacks)  # type: ignore[arg-type]


def copy_weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().cpu().clone() for parameter in trainer.model.parameters()]


class Drawer(TrainerCallback):
    """A callback that draws from the device's stream."""

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        torch.rand(3, device=args.device)


def test_modules_that_share_a_parameter_still_do(tmp_path: Path, device: torch.device) -> None:
    model = tiny.tied()
    args = TrainingArguments(str(tmp_path), report_to="none", disable_tqdm=True, max_steps=1, save_strategy="no")
    Trainer(model, args, train_dataset=tiny.language_rows(8)).train()
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device == device


def test_the_model_is_on_the_device(tmp_path: Path, device: torch.device) -> None:
    trainer = make_trainer(tmp_path)
    assert trainer.args.device == device == next(trainer.model.parameters()).device
    assert trainer.args.n_gpu == 1
    assert make_trainer(tmp_path, use_cpu=True).args.device == torch.device("cpu")


def test_draws_of_callbacks_do_not_change_training(tmp_path: Path, device: torch.device) -> None:
    weights = []
    for number, callbacks in enumerate(([], [Drawer()])):
        trainer = make_trainer(tmp_path / str(number), callbacks)
        trainer.train()
        weights.append(copy_weights(trainer))
    assert all(map(torch.equal, *weights))


def test_streams_are_read_only_for_callbacks_that_may_draw(
    tmp_path: Path, pretended: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, calls = torch.get_device_module(pretended), Counter()

    def count(name: str) -> Any:
        function = getattr(module, name)
        return lambda *args: (calls.update([name]), function(*args))[1]

    for name in ("get_rng_state", "set_rng_state"):
        monkeypatch.setattr(module, name, count(name))
    make_trainer(tmp_path / "plain").train()
    assert not calls, "none of ours draws"
    make_trainer(tmp_path / "drawn", [Drawer()]).train()
    assert calls == {"get_rng_state": 6, "set_rng_state": 6}


def test_streams_are_preserved_and_saved(tmp_path: Path, device: torch.device) -> None:
    torch.rand(1, device=device)
    state = RandomState.capture()
    assert list(state.devices) == [device.type]
    with preserve_rng():
        first = torch.rand(3, device=device).cpu()
    assert torch.equal(torch.rand(3, device=device).cpu(), first)
    assert not state.is_current()
    RandomState.read(state.export()).keep_present_devices("here").restore()
    assert torch.equal(torch.rand(3, device=device).cpu(), first)


def test_a_resumed_run_draws_what_the_whole_one_does(tmp_path: Path, device: torch.device) -> None:
    whole = make_trainer(tmp_path, save_strategy="steps", save_steps=3)
    whole.train()
    resumed = make_trainer(tmp_path, save_strategy="steps", save_steps=3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert all(map(torch.equal, copy_weights(whole), copy_weights(resumed)))


def test_memory_is_measured(tmp_path: Path, pretended: torch.device) -> None:
    metrics = make_trainer(tmp_path, skip_memory_metrics=False, journal=True).train().metrics
    names = {f"{stage}_mem_gpu_{what}_delta" for stage in ("init", "train") for what in ("alloc", "peaked")}
    assert names | {"before_init_mem_gpu"} <= set(metrics)
    assert metrics["init_mem_gpu_alloc_delta"] > 0 < metrics["train_mem_gpu_peaked_delta"]
    journals = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    peaks = [line["device_peak"] for line in map(flatten, journals) if "device_peak" in line]
    assert peaks and 0 < max(peaks) <= peak_memory()


def test_the_journal_describes_the_device(pretended: torch.device) -> None:
    found = describe_environment(pretended)
    assert found["device"] == str(pretended)
    assert found["device_name"] == accelerator.get_name(pretended)
    assert found["device_memory"] > 0


def flatten(line: dict[str, Any]) -> dict[str, Any]:
    inner = [flatten(value) for value in line.values() if isinstance(value, dict)]
    return {**line, **{name: value for one in inner for name, value in one.items()}}


@pytest.mark.parametrize(("name", "dtype"), [("fp16_full_eval", torch.float16), ("bf16_full_eval", torch.bfloat16)])
def test_evaluation_in_half_precision(tmp_path: Path, device: torch.device, name: str, dtype: torch.dtype) -> None:
    trainer = make_trainer(tmp_path, **{name: True})
    before = copy_weights(trainer)
    trainer.evaluate()
    assert set(trainer.model.formats) == {dtype}  # type: ignore[arg-type]
    assert all(map(torch.equal, copy_weights(trainer), before))


def test_emulated_bfloat16_is_refused(
    tmp_path: Path, pretended: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch.get_device_module(pretended)
    monkeypatch.setattr(module, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    for name in ("bf16", "bf16_full_eval"):
        with pytest.raises(ValueError, match=f"{name}=True on a device that does not support it"):
            TrainingArguments(str(tmp_path), **{name: True})


def test_the_cache_is_emptied_every_few_steps(
    tmp_path: Path, pretended: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[int] = []
    monkeypatch.setattr(torch.get_device_module(pretended), "empty_cache", lambda: emptied.append(1))
    make_trainer(tmp_path, torch_empty_cache_steps=2).train()
    assert len(emptied) == 3


def test_tf32(tmp_path: Path, pretended: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        TrainingArguments(str(tmp_path), tf32=True)
        is_told = "tf32=True has no effect" in capsys.readouterr().err
        assert accelerator.uses_tf32(pretended) is accelerator.supports_tf32(pretended) is not is_told
    finally:
        accelerator.set_tf32(pretended, enabled=False)


@pytest.mark.parametrize("by_map", [True, False])
def test_a_model_that_is_placed_stays_where_it_is(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch, by_map: bool
) -> None:
    model: Any = Noisy()
    if by_map:
        model.hf_device_map = {"": "cpu"}
    else:
        monkeypatch.setattr(TrainingArguments, "place_model_on_device", False)
    trainer = Trainer(model, TrainingArguments(str(tmp_path), report_to="none", max_steps=1), train_dataset=ROWS)  # type: ignore[arg-type]
    trainer.train()
    assert next(trainer.model.parameters()).device == torch.device("cpu")


def test_a_backend_that_offers_little(
    tmp_path: Path, pretended: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that adds a device need not have pinned memory, nor streams that torch knows."""

    class Stream:
        def synchronize(self) -> None:
            torch.accelerator.synchronize()

    options = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    weights = []
    for home in (tmp_path / "all", tmp_path / "little"):
        trainer = make_trainer(home, **options)
        trainer.train()
        kept = trainer.predict(ROWS[:6])  # type: ignore[arg-type]
        weights.append([*copy_weights(trainer), torch.from_numpy(kept.predictions)])
        set_pinned_memory(False)
        monkeypatch.setattr(torch.get_device_module(pretended), "Stream", Stream)
    assert all(map(torch.equal, *weights))
