"""The pretended device itself: it computes what the CPU computes, and shows what a real device hides."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.support.pretend_device import (
    UnorderedAccess,
    peak_memory,
    record_waits,
    reset_peak_memory,
    restore,
    set_float64,
    set_hostile,
    set_late_asserts,
    set_memory_limit,
)

pytestmark = pytest.mark.usefixtures("pretended")


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def train(device: torch.device | str, **options: bool) -> list[torch.Tensor]:
    model = make_model().to(device)
    rows, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 0, 1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(rows.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_training_computes_what_the_cpu_computes(device: torch.device, options: dict[str, bool]) -> None:
    assert all(map(torch.equal, train(device, **options), train("cpu", **options)))


def test_convolutions_compute_what_the_cpu_computes(device: torch.device) -> None:
    found = {}
    for place in ("cpu", device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ConvTranspose2d(3, 2, 2, groups=1)).to(place)
        model(torch.ones(1, 2, 4, 4, device=place)).square().sum().backward()
        found[str(place)] = [parameter.grad.cpu() for parameter in model.parameters()]
    assert all(map(torch.equal, *found.values()))


def test_numbers_cannot_be_reached_without_a_kernel(device: torch.device) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        torch.ones(2, device=device).numpy()


def test_tensors_of_two_devices_do_not_mix(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=device) + torch.ones(2)


def test_devices_by_context(device: torch.device) -> None:
    with torch.device("meta"):
        model = make_model()
    with pytest.raises(NotImplementedError, match="no data"):
        model.to(device)
    with device:
        assert torch.ones(2).device == torch.tensor([1.0]).device == device


def test_views_share_their_numbers(device: torch.device) -> None:
    base = torch.zeros(2, 3, device=device)
    base[1].view(3).t().add_(1)
    base.view(torch.int32)[0, 0] = 0
    assert base.tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64], ids=str)
def test_numbers_in_the_place_of_tensors(device: torch.device, dtype: torch.dtype) -> None:
    for compute in (lambda x: x % 2, lambda x: x % 0.1, lambda x: 7 % x, lambda x: torch.fmod(x, 2)):
        there, here = compute(torch.arange(1, 5, device=device, dtype=dtype)), compute(torch.arange(1, 5, dtype=dtype))
        assert there.dtype == here.dtype and torch.equal(there.cpu(), here)


def test_copies_of_models_and_files(device: torch.device) -> None:
    model = make_model().to(device)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    for name, value in copy.deepcopy(model).state_dict().items():
        assert value.device == loaded[name].device == device
        assert torch.equal(value, loaded[name])


# --------------------------------------------------------------------------------------------------------------- waits

WAITS: dict[str, tuple[Callable[[torch.Tensor], object], list[tuple[str, bool]]]] = {
    "item": (lambda x: x.sum().item(), [("item", True)]),
    "truth": (lambda x: bool(x.sum() > 0), [("item", True)]),
    "copy to the host": (lambda x: x.cpu(), [("copy to host", True)]),
    "a tensor from numbers": (lambda x: x.new_tensor([1.0]), [("copy to device from pageable memory", True)]),
    "nonzero": (lambda x: x.nonzero(), [("nonzero", True)]),
    "rows by a mask": (lambda x: x[x[0] > 0], [("index", True)]),
    "rows set by a mask": (lambda x: x.index_put((x[0] > 0,), x), [("_index_put_impl_", True)]),
    "device": (lambda x: (x + 1, torch.accelerator.synchronize()), [("synchronize", True)]),
    "no wait for kernels": (lambda x: ((x @ x.T).softmax(-1).sum(), x[0], torch.full((), 2.0, device=x.device)), []),
    "no wait for filling by a mask": (lambda x: x.masked_fill(x > 0, 0.0), []),
    "no wait for pinned memory": (lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True), []),
    "no wait for a late copy": (lambda x: x.to("cpu", non_blocking=True), []),
}


@pytest.mark.parametrize("case", WAITS)
def test_waits_are_recorded_with_their_line(device: torch.device, case: str) -> None:
    act, expected = WAITS[case]
    tensor = torch.ones(3, 3, device=device)
    with record_waits() as waits:
        act(tensor)
    assert [(wait.kind, wait.drains) for wait in waits] == expected
    assert all("test_pretend_device.py" in wait.line for wait in waits)


def test_an_event_does_not_drain_the_queue(device: torch.device) -> None:
    tensor, event = torch.ones(3, device=device), torch.Event(device)
    with record_waits() as waits:
        tensor += 1
        event.record()
        tensor += 1
        event.synchronize()
        event.synchronize()  # it is known: no wait
        event.record()
        event.synchronize()
    assert [(wait.kind, wait.drains) for wait in waits] == [("event", False), ("event", True)]


# --------------------------------------------------------------------------------------------------------- late copies


def test_a_late_copy_to_the_host_happens_at_the_wait(device: torch.device) -> None:
    source, event = torch.ones(2, device=device), torch.Event(device)
    copied = source.to("cpu", non_blocking=True)
    flags = (source > 0).to("cpu", non_blocking=True)
    event.record()
    source.zero_()
    assert copied.is_pinned() and copied.isnan().all() and not flags.any()
    assert [event.query() for _ in range(3)] == [False, False, True]
    assert copied.tolist() == [1, 1] and flags.all()


def test_pinned_memory_that_is_reused_too_early_is_found(device: torch.device) -> None:
    buffer = torch.ones(2, pin_memory=True)
    there = buffer.to(device, non_blocking=True)
    buffer.zero_()
    with pytest.raises(UnorderedAccess, match="pinned memory"):
        there.sum().item()


def test_streams_that_nothing_orders_are_found(device: torch.device) -> None:
    side = torch.Stream(device)
    tensor = torch.ones(2, device=device)
    with side, pytest.raises(UnorderedAccess, match="nothing makes"):
        tensor + 1
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        assert (tensor + 1).tolist() == [2, 2]


def test_memory_freed_under_another_stream_is_found(device: torch.device) -> None:
    side, main = torch.Stream(device), torch.accelerator.current_stream()
    for recorded in (True, False):
        tensor = torch.ones(2, device=device)
        side.wait_stream(main)
        with side:
            tensor + 1
        if recorded:
            tensor.record_stream(side)
        del tensor
        main.wait_stream(side)
    with pytest.raises(UnorderedAccess, match="freed") as found:
        restore()
    assert str(found.value).count("record_stream") == 1


def test_a_device_that_is_not_hostile_copies_at_once(device: torch.device) -> None:
    set_hostile(False)
    assert torch.ones(2, device=device).to("cpu", non_blocking=True).tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------------------- numbers


def test_generators_can_be_set_back(device: torch.device) -> None:
    module = torch.get_device_module(device)
    host = torch.get_rng_state()
    state = module.get_rng_state()
    first = torch.rand(3, device=device)
    second = torch.rand(3, device=device)
    module.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device=device)) and not torch.equal(first, second)
    assert torch.equal(host, torch.get_rng_state())
    own = torch.Generator(device=device).manual_seed(5)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3, device=device), torch.rand(3, device=device, generator=own))
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=device, generator=torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_lowers_products_and_not_losses(device: torch.device, dtype: torch.dtype) -> None:
    model, rows = make_model().to(device), torch.ones(4, 3, device=device)
    with torch.autocast(device.type, dtype=dtype):
        logits = model(rows)
        loss = nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.long, device=device))
    assert (logits.dtype, loss.dtype) == (dtype, torch.float32)
    loss.backward()


def test_scaler_skips_a_fused_step_with_an_overflow(device: torch.device) -> None:
    model = make_model().to(device)
    scaler, optimizer = torch.amp.GradScaler(device.type), torch.optim.AdamW(model.parameters(), fused=True)
    before = [parameter.clone() for parameter in model.parameters()]
    scaler.scale(model(torch.full((1, 3), float("inf"), device=device)).sum()).backward()
    with record_waits() as waits:
        scaler.step(optimizer)
    assert not waits  # found_inf stays on the device
    scaler.update()
    assert all(map(torch.equal, before, model.parameters())) and scaler.get_scale() == 2.0**15


def test_an_index_out_of_range_is_reported_late_and_ends_the_device(device: torch.device) -> None:
    set_late_asserts(True)
    table, wrong = torch.ones(3, 2, device=device), torch.full((1,), 7, device=device)
    found = nn.functional.embedding(wrong, table) * 2
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        found.sum().item()
    with pytest.raises(torch.AcceleratorError):
        torch.ones(1, device=device) + 1
    set_late_asserts(False)
    with pytest.raises(IndexError):
        nn.functional.embedding(wrong, table)


def test_float64_may_be_missing(device: torch.device) -> None:
    set_float64(False)
    with pytest.raises(TypeError, match="float64"):
        torch.ones(1, device=device).double()


def test_memory_is_counted_and_limited(device: torch.device) -> None:
    module = torch.get_device_module(device)
    before = torch.accelerator.memory_allocated()
    reset_peak_memory()
    kept = torch.empty(1024, device=device)
    torch.empty(2048, device=device)
    assert torch.accelerator.memory_allocated() - before == 4096 == kept.nbytes
    assert peak_memory() - before == 3 * 4096 == module.max_memory_allocated() - before
    set_memory_limit(before + 8192)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2048, device=device)


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin_memory(device: torch.device, workers: int) -> None:
    rows = [torch.ones(2), torch.zeros(2)]
    loader = torch.utils.data.DataLoader(rows, batch_size=2, pin_memory=True, num_workers=workers)
    (batch,) = loader
    assert batch.is_pinned() and batch.to(device).sum().item() == 2


def test_processes_that_a_test_starts_have_the_device(device: torch.device) -> None:
    program = "import torch; print(torch.ones(2, device=torch.accelerator.current_accelerator()).sum())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"device='{device}'" in done.stdout
