"""Asking torch about the accelerator of the machine, of whatever kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.core import accelerator
from ostinato.core.out_of_memory import is_out_of_memory
from ostinato.core.random import RandomState, preserve_rng

KINDS = ["cuda", "xpu", "mtia"]


class FakeModule(SimpleNamespace):
    """What torch has for a kind of device: here two devices whose streams are one number each."""

    def __init__(self, **other: Any) -> None:
        super().__init__(**other)
        self.streams, self.used = [torch.tensor([1]), torch.tensor([2])], True

    def device_count(self) -> int:
        return 2

    def is_initialized(self) -> bool:
        return self.used

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        return self.streams[device.index].clone()

    def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
        self.streams[device.index] = state.clone()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fake(kind: str, monkeypatch: pytest.MonkeyPatch) -> FakeModule:
    module = FakeModule()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device(kind))
    monkeypatch.setattr(torch, "get_device_module", lambda device=None: module)
    return module


def test_a_process_has_one_of_the_devices(kind: str, fake: FakeModule) -> None:
    assert [accelerator.choose_device(rank) for rank in range(3)] == [torch.device(kind, i) for i in (0, 1, 0)]
    assert accelerator.count_devices() == 2


def test_without_a_device_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    built = torch.device("cuda")
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: None if check_available else built
    )
    assert accelerator.choose_device(1) == torch.device("cpu")
    assert (accelerator.count_devices(), accelerator.find_missing_kind()) == (0, "cuda")
    assert not accelerator.can_pin_memory()
    assert accelerator.read_streams() == {}


def test_the_streams_of_all_devices_are_kept(kind: str, fake: FakeModule) -> None:
    with preserve_rng():
        fake.streams[1] += 5
        assert not RandomState.capture().devices[kind][1].equal(torch.tensor([2]))
    assert fake.streams == [torch.tensor([1]), torch.tensor([2])]
    state = RandomState.capture()
    assert state.is_current()
    fake.streams[1] += 1
    assert not state.is_current()


def test_the_stream_of_one_device(kind: str, fake: FakeModule) -> None:
    with preserve_rng([torch.device(kind, 1)]):
        fake.streams = [stream + 5 for stream in fake.streams]
    assert fake.streams == [torch.tensor([6]), torch.tensor([2])]


def test_a_device_that_is_not_used_stays_so(fake: FakeModule) -> None:
    """To ask for a stream would start the driver, which a forked worker cannot do."""
    fake.used = False
    assert accelerator.read_streams() == {}
    fake.used, fake._is_in_bad_fork = True, lambda: True
    assert accelerator.read_streams() == {}


def test_memory(kind: str, fake: FakeModule) -> None:
    device = torch.device(kind, 1)
    assert accelerator.read_memory(device) is None, "torch does not count it"
    fake.used = False
    assert accelerator.read_memory(device) == accelerator.DeviceMemory(0, 0), "nothing is on it yet"
    fake.used = True
    fake.memory_allocated = lambda device: 10 + device.index
    assert accelerator.read_memory(device) == accelerator.DeviceMemory(11, None)
    fake.max_memory_allocated = lambda device: 20 + device.index
    assert accelerator.read_memory(device) == accelerator.DeviceMemory(11, 21)
    assert accelerator.read_memory(torch.device("cpu")) is None


@pytest.mark.parametrize(("answer", "supported"), [(True, True), (False, False)])
def test_emulated_bfloat16_is_not_support(kind: str, fake: FakeModule, answer: bool, supported: bool) -> None:
    fake.is_bf16_supported = lambda including_emulation=True: including_emulation or answer
    assert accelerator.supports_bf16(torch.device(kind, 0)) is supported
    fake.is_bf16_supported = lambda: answer  # of a package that emulates nothing
    assert accelerator.supports_bf16(torch.device(kind, 0)) is supported


def test_the_cache_of_the_device_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = []
    for device in ("cuda", "mps"):
        monkeypatch.setattr(getattr(torch, device), "empty_cache", lambda device=device: emptied.append(device))
    accelerator.empty_cache(torch.device("cuda", 0))
    accelerator.empty_cache(torch.device("mps"))
    accelerator.empty_cache(torch.device("cpu"))
    assert emptied == ["cuda", "mps"]


def test_tf32_can_be_read_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's compiler reads the older setting, and fails where only the newer one was set."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    device, before = torch.device("cuda", 0), torch.backends.cudnn.allow_tf32
    try:
        for enabled, older in ((True, "high"), (False, "highest")):
            accelerator.set_tf32(device, enabled=enabled)
            assert torch.get_float32_matmul_precision() == older
            assert accelerator.uses_tf32(device) is torch.backends.cudnn.allow_tf32 is enabled
    finally:
        torch.backends.cudnn.allow_tf32 = before
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    accelerator.set_tf32(device, enabled=True)
    assert not accelerator.uses_tf32(device)


def test_what_follows_the_failure_of_a_device() -> None:
    try:
        try:
            raise RuntimeError("CUDA error: device-side assert triggered")
        except RuntimeError:
            raise ValueError("label 9 is out of range") from None
    except ValueError as error:
        assert accelerator.follows_failure(error) and not accelerator.has_failed(error)
    assert not accelerator.follows_failure(ValueError())
    assert is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
