"""What a loss is divided by is found out, and the gradient does not depend on how a batch is cut."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ostinato.core.random import RandomState
from ostinato.loss.counting import count_targets, trial, weigh
from ostinato.loss.objective import Objective, build_zero_loss
from tests.support import tiny


def surprise(outputs, labels, reduction="sum"):
    return nn.functional.cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten(), reduction=reduction)


def size(outputs, labels):
    """Something to regularise: the mean square of the logits that have a target."""
    return outputs["logits"][labels != -100].pow(2).mean()


def share(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) / num_items_in_batch


def share_by_item(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) * (1.0 / num_items_in_batch.item())


def share_by_python_number(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) / int(num_items_in_batch)


def share_by_float(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) / float(num_items_in_batch)


def mean(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels, "mean")


def detour(outputs, labels, num_items_in_batch=None):
    """Touches the number without using it."""
    return surprise(outputs, labels, "mean") + 0.0 * num_items_in_batch


def mixed(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) / num_items_in_batch + 0.1 * size(outputs, labels)


def mixed_by_item(outputs, labels, num_items_in_batch=None):
    return surprise(outputs, labels) / num_items_in_batch.item() + 0.1 * size(outputs, labels)


SCALES = {
    share: "share",
    share_by_item: "share",
    share_by_python_number: "share",
    share_by_float: "share",
    mean: "mean",
    detour: "mean",
    mixed: "mixed",
    mixed_by_item: "mixed",
}
EVERY_LOSS = pytest.mark.parametrize("function", SCALES, ids=lambda function: function.__name__)
CUTS = {"1x16": [16], "2x8": [8, 8], "4x4": [4] * 4, "16x1": [1] * 16, "unequal": [3, 5, 1, 7]}


def batch_of(rows: int = 16, *, blank: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """Rows with unequal numbers of targets; those of `blank` have none."""
    data = tiny.language_rows(rows)
    labels = torch.tensor([row["labels"] for row in data])
    labels[list(blank)] = -100
    return {"input_ids": torch.tensor([row["input_ids"] for row in data]), "labels": labels}


def cut_up(batch: dict[str, torch.Tensor], sizes: list[int]) -> list[dict[str, torch.Tensor]]:
    parts = {name: tensor.split(sizes) for name, tensor in batch.items()}
    return [{name: tensors[index] for name, tensors in parts.items()} for index in range(len(sizes))]


def gradient(function, batch, sizes: list[int]) -> tuple[torch.Tensor, float, Objective]:
    """One optimizer step's gradient and loss over micro-batches of the given sizes, and the objective afterwards."""
    model, objective = tiny.tied(), Objective(loss_func=function)
    parts = cut_up(batch, sizes)
    weights = [weigh(part, shifted=False) for part in parts]
    total, reported = count_targets(batch["labels"], shifted=False), 0.0
    for part, weight in zip(parts, weights, strict=True):
        scaled = objective.scale_by(1.0 if len(sizes) == 1 else sum(weights) / weight if weight else math.inf)

        def compute(count, part=part):
            return objective(model, dict(part), count)[0]

        loss = scaled.settle_scale(compute, total, model) if scaled.is_scale_needed(total) else None
        loss = compute(scaled.choose_count(total)) if loss is None else loss
        loss = build_zero_loss(model) if scaled.share.weighs_nothing else scaled.share_of(loss, total)
        loss.backward()
        reported += loss.item()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double(), reported, objective


@EVERY_LOSS
@pytest.mark.parametrize("cut", list(CUTS)[1:])
def test_gradient_does_not_depend_on_the_cut(function, cut: str) -> None:
    batch = batch_of()
    whole, whole_loss, _ = gradient(function, batch, CUTS["1x16"])
    got, loss, objective = gradient(function, batch, CUTS[cut])
    assert objective.scale == SCALES[function]
    assert float((got - whole).norm() / whole.norm()) < 1e-6
    assert loss == pytest.approx(whole_loss, rel=1e-6)


@EVERY_LOSS
@pytest.mark.parametrize("blank", [(0,), (3, 4, 15)], ids=str)
@pytest.mark.parametrize("cut", ["16x1", "unequal"])
def test_rows_without_targets_weigh_nothing(function, cut: str, blank: tuple[int, ...]) -> None:
    batch = batch_of(blank=blank)
    whole, whole_loss, _ = gradient(function, batch, CUTS["1x16"])
    got, loss, objective = gradient(function, batch, CUTS[cut])
    assert objective.scale == SCALES[function]
    assert torch.isfinite(got).all()
    assert float((got - whole).norm() / whole.norm()) < 1e-6
    assert loss == pytest.approx(whole_loss, rel=1e-6)


@EVERY_LOSS
def test_the_users_function_is_not_made_to_warn(function) -> None:
    """torch warns, once per process, when a number that requires a gradient is taken out of its tensor."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        gradient(function, batch_of(), CUTS["4x4"])
    finally:
        torch.set_warn_always(before)


def test_uncut_batch_is_not_examined() -> None:
    *_, objective = gradient(mixed, batch_of(), [16])
    assert objective.scale == "unknown"


def test_first_loss_of_zero_says_nothing() -> None:
    """A loss that happens to be zero at first is no mean; what follows must still be added up rightly."""

    def gated(outputs, labels, num_items_in_batch=None):
        gate = (labels[:, :1] != -100).float()  # rows that begin with a target count, others do not
        each = nn.functional.cross_entropy(outputs["logits"].mT, labels, reduction="none")
        return (gate * each).sum() / num_items_in_batch

    batch = batch_of()
    first = int((batch["labels"][:, 0] == -100).int().argmax())
    order = [first, *(row for row in range(16) if row != first)]  # a row that counts nothing comes first
    batch = {name: tensor[order] for name, tensor in batch.items()}
    whole, *_ = gradient(gated, batch, [16])
    got, *_ = gradient(gated, batch, CUTS["16x1"])
    assert float((got - whole).norm() / whole.norm()) < 1e-6


@pytest.mark.parametrize("by_item", [False, True], ids=["by tensor", "by item"])
def test_loss_of_zero_with_a_gradient(by_item: bool) -> None:
    """Policy gradients: the value is always zero and says nothing, the gradient is what counts."""

    def policy(outputs, labels, num_items_in_batch=None):
        chosen = -nn.functional.cross_entropy(outputs["logits"].mT, labels, reduction="none")
        count = num_items_in_batch.item() if by_item else num_items_in_batch
        return -(chosen - chosen.detach()).sum() / count

    batch = batch_of()
    whole, *_ = gradient(policy, batch, [16])
    for cut in ("4x4", "unequal"):
        got, *_ = gradient(policy, batch, CUTS[cut])
        assert float((got - whole).norm() / whole.norm()) < 1e-6


@pytest.mark.parametrize(("function", "said"), [(share, ""), (mean, "does not use"), (mixed, "only part of the loss")])
def test_what_is_rescaled_is_said(function, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    from ostinato.core.notices import forget_notices

    forget_notices()
    gradient(function, batch_of(), CUTS["4x4"])
    text = capsys.readouterr().err
    assert said in text
    assert text.count("\n") == (1 if said else 0)


# --------------------------------------------------------------------------------------------------- no trace left


class Normalised(nn.Module):
    """Has statistics and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.head = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)

    def forward(self, x):
        return {"logits": self.head(self.drop(self.norm(x)))}


def normalised() -> tuple[Normalised, dict[str, torch.Tensor]]:
    model = tiny.seeded(Normalised)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return model, {"x": torch.randn(8, 4), "labels": torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])}


def test_trial_leaves_no_trace() -> None:
    model, batch = normalised()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}
    state = RandomState.capture()
    with trial(model) as attempt:
        one = attempt(lambda: surprise(model(batch["x"]), batch["labels"]))
        other = attempt(lambda: surprise(model(batch["x"]), batch["labels"]))
        assert attempt(lambda: None) is None
    assert one == other  # the same dropout
    assert torch.equal(state.torch, torch.get_rng_state())
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == buffers
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_trial_gives_the_buffers_back_after_an_error() -> None:
    model, _ = normalised()
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}
    with pytest.raises(ZeroDivisionError), trial(model) as attempt:
        attempt(lambda: 1 / 0)
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == buffers
    assert torch.is_grad_enabled()


def test_trial_in_the_middle_of_a_graph() -> None:
    """Evaluation-mode statistics are saved for backward; the trial must not change them underneath."""
    model, batch = normalised()
    model.norm.eval()
    loss = surprise(model(batch["x"]), batch["labels"])
    model.norm.train()
    with trial(model) as attempt:
        attempt(lambda: surprise(model(batch["x"]), batch["labels"]))
    loss.backward()
    assert model.head.weight.grad is not None


@pytest.mark.parametrize("function", [share, share_by_item, mean, mixed], ids=lambda function: function.__name__)
def test_settling_counts_the_batch_once(function) -> None:
    """Streams and statistics end where one plain computation would have left them, and so does the gradient."""
    state = RandomState.capture()

    def one(settles: bool):
        state.restore()
        model, batch = normalised()
        objective = Objective(loss_func=function)
        scaled = objective.scale_by(2.0)
        total = torch.tensor(16)

        def compute(count):
            return objective(model, dict(batch), count)[0]

        if settles:
            loss = scaled.settle_scale(compute, total, model)
        else:
            objective.scale = SCALES[function]  # type: ignore[assignment]
            loss = compute(scaled.choose_count(total))
        loss.backward()
        numbers = [p.grad.flatten() for p in model.parameters()] + [b.flatten().float() for b in model.buffers()]
        return torch.cat(numbers), loss.item(), torch.get_rng_state()

    plain, settled = one(False), one(True)
    state.restore()
    assert plain[1] == settled[1]
    assert torch.equal(plain[2], settled[2]), "the random streams have moved on"
    assert torch.equal(plain[0], settled[0]), "gradients or statistics differ"
