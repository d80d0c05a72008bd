"""Number formats."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import PrecisionSettings
from ostinato.strategies.precision import (
    Autocast,
    FullPrecision,
    ScaledFloat16,
    choose_precision,
    half_precision_weights,
)

BF16 = Autocast("cpu", torch.bfloat16)


class Model(nn.Module):
    """Notes the format it computes in, and returns it inside containers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("shift", torch.full((2,), 1 / 3))
        self.register_buffer("steps", torch.tensor(4))
        self.inside: torch.dtype | None = None

    def forward(self, x: torch.Tensor, *, flag: bool = False):
        hidden = self.linear(x)
        self.inside = hidden.dtype
        return {"logits": hidden, "many": (hidden, [hidden]), "flag": flag, "ids": torch.tensor([1])}


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def test_small_inside_float32_outside(model: Model) -> None:
    with BF16.forward(model):
        outputs = model(torch.ones(4, 3), flag=True)
    assert model.inside is torch.bfloat16
    assert outputs["logits"].dtype is torch.float32
    assert outputs["many"][0].dtype is torch.float32
    assert outputs["many"][1][0].dtype is torch.float32
    assert outputs["ids"].dtype is torch.int64
    assert outputs["flag"] is True
    assert not torch.is_autocast_enabled("cpu")


def test_gradients_are_float32(model: Model) -> None:
    with BF16.forward(model):
        BF16.backward(model(torch.ones(4, 3))["logits"].sum())
    assert model.linear.weight.grad.dtype is torch.float32


def test_forward_is_restored(model: Model) -> None:
    with BF16.forward(model):
        assert "forward" in vars(model)
    assert "forward" not in vars(model)
    with pytest.raises(KeyError), BF16.forward(model):
        raise KeyError
    assert "forward" not in vars(model)
    model(torch.ones(1, 3))
    assert model.inside is torch.float32


def test_signature_is_kept(model: Model) -> None:
    before = inspect.signature(model.forward)
    with BF16.forward(model):
        assert inspect.signature(model.forward) == before
        assert model.forward.__name__ == "forward"


def test_entered_twice(model: Model) -> None:
    """Evaluation in the middle of training enters again; leaving it must not end the outer one."""
    with BF16.forward(model):
        with BF16.forward(model):
            model(torch.ones(1, 3))
        model(torch.ones(1, 3))
        assert model.inside is torch.bfloat16
    model(torch.ones(1, 3))
    assert model.inside is torch.float32


def test_copy_made_afterwards_is_its_own(model: Model) -> None:
    with BF16.forward(model):
        pass
    other = copy.deepcopy(model)
    other.linear.weight.data.zero_()
    other.linear.bias.data.zero_()
    assert other(torch.ones(1, 3))["logits"].abs().sum().item() == 0


def test_a_forward_of_the_users_own_computes_in_small_numbers_too(model: Model) -> None:
    """Somebody replaced `forward` on the instance (as quantizers and profilers do) before training."""
    original = model.forward
    model.forward = lambda *args, **kwargs: original(*args, **kwargs)
    with BF16.forward(model):
        model(torch.ones(1, 3))
        assert model.inside is torch.bfloat16
    assert "forward" in vars(model)


def test_full_precision_changes_nothing(model: Model) -> None:
    with FullPrecision().forward(model):
        assert "forward" not in vars(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FullPrecision().backward(model(torch.ones(1, 3))["logits"].sum())
    before = model.linear.bias.detach().clone()
    assert FullPrecision().step(optimizer) is True
    assert not torch.equal(before, model.linear.bias)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_overflows_lowers_the_scale_alone(fused: bool) -> None:
    """A fused optimizer is called nevertheless and skips the step itself: the schedule follows, as in transformers."""
    precision, weight = ScaledFloat16("cpu"), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    for scale in (32768.0, 16384.0):
        precision.backward((weight * torch.inf).sum())
        precision.unscale(optimizer)
        assert precision.has_overflowed(optimizer)
        assert precision.skip(optimizer) is fused
        assert precision.skipped_last_step is not fused
        assert precision.scaler.get_scale() == scale
        assert weight.tolist() == [1.0, 1.0]
        optimizer.zero_grad()
    precision.backward(weight.sum())
    precision.unscale(optimizer)
    assert not precision.has_overflowed(optimizer)
    assert precision.step(optimizer) is True
    assert weight.tolist() == pytest.approx([0.9, 0.9])


def test_a_step_given_up_for_another_reason_takes_place_nowhere() -> None:
    """The loss is NaN, and the gradients are finite: the scaler would let them through."""
    precision, weight = ScaledFloat16("cpu"), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        precision.backward(weight.sum())
        precision.unscale(optimizer)
        assert precision.skip(optimizer) is False
    assert precision.skipped_last_step
    assert weight.tolist() == [1.0, 1.0]
    assert precision.scaler.get_scale() == 65536.0


def test_gradients_are_unscaled_once_whoever_asks() -> None:
    precision, weight = ScaledFloat16("cpu"), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        precision.backward(weight.sum())
        precision.unscale(optimizer)
        precision.unscale(optimizer)
        assert weight.grad is not None and weight.grad.tolist() == [1.0, 1.0]
        precision.step(optimizer)
        optimizer.zero_grad()


def test_choice(capsys: pytest.CaptureFixture[str]) -> None:
    from ostinato.core.notices import forget_notices

    forget_notices()
    assert type(choose_precision(PrecisionSettings(bf16=False, fp16=False, device_type="cpu"))) is FullPrecision
    chosen = choose_precision(PrecisionSettings(bf16=True, fp16=False, device_type="cpu"))
    assert isinstance(chosen, Autocast)
    assert chosen.dtype is torch.bfloat16
    assert capsys.readouterr().err == ""
    assert type(choose_precision(PrecisionSettings(bf16=False, fp16=True, device_type="cpu"))) is FullPrecision
    assert "float32" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_come_back(model: Model, dtype: torch.dtype) -> None:
    """Not converted back, but the very same memory: a round trip through 16 bits would lose digits."""
    parameters = {name: (id(p), p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters()}
    shift = model.shift.clone()
    with half_precision_weights(model, dtype):
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert model.shift.dtype is dtype
        assert model.steps.dtype is torch.int64
    for name, parameter in model.named_parameters():
        identity, pointer, value = parameters[name]
        assert (id(parameter), parameter.data_ptr()) == (identity, pointer)
        assert torch.equal(parameter, value)
    assert torch.equal(model.shift, shift)


def test_half_precision_weights_come_back_after_an_error(model: Model) -> None:
    with pytest.raises(KeyError), half_precision_weights(model, torch.bfloat16):
        raise KeyError
    assert model.linear.weight.dtype is torch.float32


def test_half_precision_of_tied_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    with half_precision_weights(model, torch.bfloat16):
        assert model[1].weight is model[0].weight
        model(torch.ones(1, 3, dtype=torch.bfloat16))
    assert model[1].weight is model[0].weight
    assert model[0].weight.dtype is torch.float32


def test_half_precision_off(model: Model) -> None:
    with half_precision_weights(model, None):
        assert model.linear.weight.dtype is torch.float32
