"""Arguments about memory: batches that shrink, caches that are emptied, kernels that are replaced."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.support import tiny
from tests.support.parity import run_both
from tests.support.records import assert_same

pytest.importorskip("transformers")


# ------------------------------------------------------------------------------------------------ auto_find_batch_size


class Hungry(tiny.Regression):
    limit, after = 5, 0

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        self.calls.append(len(x))
        if len(x) > self.limit and len(self.calls) > self.after:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(x, labels)


def train_hungry(api: Any, model: Hungry, **arguments: Any) -> list[int]:
    api.fit(
        model,
        tiny.regression_rows(),
        auto_find_batch_size=True,
        per_device_train_batch_size=16,
        num_train_epochs=1,
        **arguments,
    )
    return model.calls


def test_batches_shrink_by_the_same_share_and_give_the_same_run() -> None:
    theirs, ours = run_both(lambda api: train_hungry(api, tiny.seeded(Hungry)))
    assert theirs.result == ours.result == [16, 14, 12, 10, 9, 8, 7, 6, 5, 5, 5, 5, 4]
    assert theirs.log_history[:-1] == ours.log_history[:-1]
    assert_same(theirs.weights, ours.weights)
    assert theirs.state["train_batch_size"] == ours.state["train_batch_size"] == 5


def test_steps_are_lost_in_transformers_only() -> None:
    """Out of memory in the second step: transformers counts from 0 again, with the weights of the first step."""

    class Later(Hungry):
        limit, after = 7, 1

    theirs, ours = run_both(lambda api: train_hungry(api, tiny.seeded(Later)))
    assert theirs.result == [16, 8, 14, 12, 10, 9, 8, 7, 7, 7, 3]
    assert [entry["step"] for entry in theirs.log_history if "loss" in entry] == [1, 2, 3, 4]
    assert ours.result == [16, 8, 8, 8, 8, 8, 8, 7, 1]
    assert [entry["step"] for entry in ours.log_history if "loss" in entry] == [1, 2, 3]


# ------------------------------------------------------------------------------------------------------ empty caches


def look_again() -> None:
    """Let transformers and accelerate look again for devices and packages."""
    for name in ("transformers.utils.import_utils", "accelerate.utils.imports"):
        for key, function in vars(sys.modules[name]).items() if name in sys.modules else ():
            if key.endswith("_available"):
                getattr(function, "cache_clear", lambda: None)()


@pytest.fixture
def fresh_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    look_again()
    yield monkeypatch
    monkeypatch.undo()
    look_again()


@pytest.mark.parametrize("accumulation", [1, 2])
def test_caches_are_emptied_between_forward_and_backward(accumulation: int, fresh_look: pytest.MonkeyPatch) -> None:
    """On a machine that has Apple's GPU and does not use it: transformers empties its cache nevertheless."""
    order: list[str] = []
    fresh_look.setattr(torch.mps, "empty_cache", lambda: order.append("cache"))
    fresh_look.setattr("ostinato.core.accelerator.empty_cache", lambda device: order.append("cache"))
    events = {}

    def script(api: Any) -> None:
        for question in ("is_available", "is_built"):
            fresh_look.setattr(torch.backends.mps, question, lambda: not api.is_ours)
        model = tiny.regression()
        forward = model.forward
        model.forward = lambda x, labels=None: (order.append("forward"), forward(x, labels))[1]
        model.outer.weight.register_hook(lambda gradient: order.append("backward"))
        order.clear()
        arguments = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 4, "max_steps": 3}
        api.fit(model, tiny.regression_rows(), torch_empty_cache_steps=2, **arguments)
        events[api.name] = order[order.index("forward") :]

    run_both(script)
    assert events["transformers"] == events["ostinato"]
    with_cache, without = ["forward", "cache", "backward"] * accumulation, ["forward", "backward"] * accumulation
    assert events["ostinato"] == [*with_cache, *without, *with_cache]


def test_nothing_is_emptied_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("cuda"))

    def script(api: Any) -> None:
        calls.clear()
        api.fit(tiny.regression(), tiny.regression_rows(), torch_empty_cache_steps=1, max_steps=2)
        assert calls == []

    run_both(script)


# ----------------------------------------------------------------------------------------------------- Liger's kernels


@pytest.fixture
def liger(fresh_look: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """A package that records what it is called with."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def apply(model: Any, **config: Any) -> None:
        calls.append((type(model).__name__, config))

    for name in ("liger_kernel", "liger_kernel.transformers"):
        module: Any = types.ModuleType(name)
        module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None, is_package=True), []
        module.__version__, module._apply_liger_kernel_to_instance = "0.8.5", apply
        fresh_look.setitem(sys.modules, name, module)
    return calls


@pytest.mark.parametrize("config", [None, {"rope": False, "swiglu": True}])
@pytest.mark.parametrize("adapters", [False, True])
def test_kernels_are_applied_when_training_starts(
    liger: list[tuple[str, dict[str, Any]]], config: dict[str, bool] | None, adapters: bool
) -> None:
    peft = pytest.importorskip("peft") if adapters else None

    def script(api: Any) -> list[tuple[str, dict[str, Any]]]:
        liger.clear()
        model = tiny.llama()
        if peft is not None:
            model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
        args = api.args(use_liger_kernel=True, liger_kernel_config=config, max_steps=1)
        trainer = api.trainer(model, args, train_dataset=tiny.language_rows())
        assert liger == []
        trainer.train()
        return list(liger)

    theirs, ours = run_both(script)
    assert theirs.result == ours.result == [("LlamaForCausalLM", config or {})]
