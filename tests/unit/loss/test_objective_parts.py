"""Which loss; what a model or a function takes and returns; how much a batch weighs."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ostinato.core.errors import ModelOutputError
from ostinato.loss.counting import count_targets, has_shifted_labels, observe_shift, weigh
from ostinato.loss.model_outputs import BareTensorError, loss_of
from ostinato.loss.objective import Objective, build_zero_loss
from ostinato.loss.signatures import LossSignature, can_take_num_items
from ostinato.loss.smoothing import LabelSmoother
from tests.support import tiny

# --------------------------------------------------------------------------------------------------------- loss_of


def test_loss_by_name_or_first() -> None:
    loss = torch.tensor(1.5)
    assert loss_of({"logits": torch.ones(2), "loss": loss}, {}) is loss
    assert loss_of((loss, torch.ones(2)), {}) is loss
    assert loss_of(loss, {}) is loss


@pytest.mark.parametrize("outputs", [{"logits": 1, "hidden": 2}, {"loss": None, "hidden": 2}])
def test_no_loss_among_the_outputs(outputs: dict) -> None:
    with pytest.raises(ModelOutputError) as caught:
        loss_of(outputs, {"input_ids": 1, "label": 2})
    text = str(caught.value)
    assert "hidden" in text
    assert "input_ids, label" in text
    assert "label_names" in text


@pytest.mark.parametrize("outputs", [None, (), []])
def test_nothing_returned(outputs) -> None:
    with pytest.raises(ModelOutputError, match="returned nothing"):
        loss_of(outputs, {})


def test_bare_tensor() -> None:
    logits = torch.ones(4, 3)
    with pytest.raises(BareTensorError, match=r"\(4, 3\)") as caught:
        loss_of(logits, {})
    assert caught.value.outputs is logits
    assert "compute_loss_func" in caught.value.fix
    assert torch.equal(pickle.loads(pickle.dumps(caught.value)).outputs, logits)


# ------------------------------------------------------------------------------------------------------- signatures


def test_takes_num_items() -> None:
    class Plain(nn.Module):
        def forward(self, x): ...

    class Named(nn.Module):
        def forward(self, x, num_items_in_batch=None): ...

    class Anything(nn.Module):
        def forward(self, x, **kwargs): ...

    class SaysNo(Anything):
        accepts_loss_kwargs = False

    class SaysYes(Plain):
        accepts_loss_kwargs = True

    found = [can_take_num_items(kind()) for kind in (Plain, Named, Anything, SaysNo, SaysYes)]
    assert found == [False, True, True, False, True]


def test_loss_signature() -> None:
    def old(model, inputs): ...
    def middle(model, inputs, return_outputs=False): ...
    def new(model, inputs, return_outputs=False, num_items_in_batch=None): ...
    def counts(model, inputs, num_items_in_batch=None): ...
    def anything(model, inputs, **kwargs): ...
    def loose(model, inputs, return_outputs=False, **kwargs): ...
    def positional(*args): ...

    found = [
        (signature.takes_return_outputs, signature.takes_num_items)
        for signature in map(LossSignature.of, (old, middle, new, counts, anything, loose, positional))
    ]
    no, yes = False, True
    assert found == [(no, no), (yes, no), (yes, yes), (no, yes), (yes, yes), (yes, yes), (no, no)]


# ------------------------------------------------------------------------------------------------------- the choice


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.got: dict = {}

    def forward(self, x, **kwargs):
        self.got = kwargs
        return {"loss": (self.weight * x).sum(), "logits": self.weight * x}


def test_own_loss_of_the_model() -> None:
    model = Model()
    loss, outputs = Objective()(model, {"x": torch.ones(2, 3), "labels": 1}, 8)
    assert loss is outputs["loss"]
    assert model.got == {"labels": 1}


def test_count_is_handed_on_only_to_who_takes_it() -> None:
    model = Model()
    Objective(model_takes_num_items=True)(model, {"x": torch.ones(2, 3)}, 8)
    assert model.got == {"num_items_in_batch": 8}
    Objective(model_takes_num_items=True)(model, {"x": torch.ones(2, 3)}, None)
    assert model.got == {}


def test_function_gets_outputs_labels_and_count() -> None:
    got: list = []

    def function(outputs, labels, num_items_in_batch=None):
        got.append((outputs["logits"].shape, labels, num_items_in_batch))
        return torch.tensor(5.0)

    model = Model()
    loss, _ = Objective(loss_func=function)(model, {"x": torch.ones(2, 3), "labels": "l"}, 8)
    assert loss == 5
    assert got == [(torch.Size([2, 3]), "l", 8)]
    assert model.got == {}  # the labels were taken out


def test_function_without_labels_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from ostinato.core.notices import forget_notices

    forget_notices()
    objective = Objective(loss_func=lambda outputs, labels, num_items_in_batch=None: outputs["loss"])
    for _ in range(2):
        objective(Model(), {"x": torch.ones(2, 3)}, None)
    assert capsys.readouterr().err.count("labels=None") == 1


def test_function_comes_before_smoothing() -> None:
    objective = Objective(loss_func=lambda *rest, **kwargs: torch.tensor(5.0), smoother=LabelSmoother())
    assert objective(Model(), {"x": torch.ones(2, 3), "labels": torch.tensor([0, 1])}, None)[0] == 5


def test_smoothed_labels() -> None:
    labels = torch.tensor([0, 1])
    model = Model()
    loss, outputs = Objective(smoother=LabelSmoother(0.1))(model, {"x": torch.ones(2, 3), "labels": labels}, None)
    assert torch.equal(loss, LabelSmoother(0.1)(outputs, labels))
    assert model.got == {}


def test_decoder_gets_its_inputs_when_the_labels_are_taken_out() -> None:
    class EncoderDecoder(Model):
        config = SimpleNamespace(is_encoder_decoder=True)

        def prepare_decoder_input_ids_from_labels(self, labels):
            return labels + 10

    objective, model = Objective(smoother=LabelSmoother()), EncoderDecoder()
    labels = torch.tensor([0, 1])
    objective(model, {"x": torch.ones(2, 3), "labels": labels}, None)
    assert model.got["decoder_input_ids"].tolist() == [10, 11]
    objective(model, {"x": torch.ones(2, 3), "labels": labels, "decoder_input_ids": 7}, None)
    assert model.got["decoder_input_ids"] == 7


def test_no_loss_reaches_every_parameter() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].bias.requires_grad_(False)
    build_zero_loss(model).backward()
    assert [p.grad is not None for p in model.parameters()] == [True, False, True, True]
    assert all(float(p.grad.abs().sum()) == 0 for p in model.parameters() if p.grad is not None)


def test_share_over_processes() -> None:
    """DDP averages gradients: a share has to be multiplied, a mean's divisor already knows of it."""
    assert Objective(scale="share", processes=2).scale_by(1.0).share_of(torch.tensor(3.0), 8) == 6
    mean = Objective(scale="mean", processes=2).scale_by(4.0)
    assert mean.share_of(torch.tensor(3.0), 8) == 0.75
    assert mean.get_own_count(16) == 2


# --------------------------------------------------------------------------------------------------------- counting


def test_count_targets() -> None:
    labels = torch.tensor([[1, 2, -100], [-100, 3, 4]])
    assert count_targets(labels, shifted=False) == 4
    assert count_targets(labels, shifted=True) == 3
    assert count_targets(torch.tensor([1, -100, 2]), shifted=True) == 2  # one label per row: nothing to shift
    assert count_targets([1, 2], shifted=False) is None


def test_weigh() -> None:
    assert weigh({"labels": torch.tensor([[1, -100]]), "x": torch.ones(1, 2)}, shifted=False) == 1.0
    assert weigh({"x": torch.ones(5, 2)}, shifted=False) == 5.0
    assert weigh({"labels": torch.full((2, 3), -100)}, shifted=False) == 0.0
    assert weigh((torch.ones(4),), shifted=False) == 4.0
    assert weigh({}, shifted=False) == 1.0


def test_what_a_model_says_about_shifting() -> None:
    assert has_shifted_labels(tiny.regression()) is False
    assert has_shifted_labels(SimpleNamespace(loss_type="ForCausalLM")) is True  # type: ignore[arg-type]
    assert has_shifted_labels(SimpleNamespace(loss_type="ForMaskedLM")) is False  # type: ignore[arg-type]
    assert has_shifted_labels(SimpleNamespace(loss_type=None, loss_function=len)) is None  # type: ignore[arg-type]
    module = nn.Module()
    module.loss_function = nn.CrossEntropyLoss()
    assert has_shifted_labels(module) is None


def test_a_model_is_not_asked_for_a_loss_that_it_would_have_to_guess() -> None:
    """A bare encoder of transformers warns when its loss function is looked up."""

    class Encoder(nn.Module):
        @property
        def loss_function(self) -> object:
            raise AssertionError("looked up")

    assert has_shifted_labels(Encoder()) is None


@pytest.mark.parametrize(
    ("build", "shifts"),
    [(lambda: tiny.gpt2(loss_type=None), True), (lambda: tiny.bert("MaskedLM"), False), (tiny.llama, True)],
    ids=["GPT-2", "BERT", "Llama"],
)
def test_shift_is_observed(build, shifts: bool) -> None:
    pytest.importorskip("transformers")
    model = build().train()
    rows = tiny.language_rows(4)
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    stream = torch.get_rng_state()
    assert observe_shift(model, batch) is shifts
    assert torch.equal(stream, torch.get_rng_state())
    assert model.training
    assert set(batch) == set(rows[0])


@pytest.mark.parametrize("hide", [slice(0, 1), slice(0, None)], ids=["masked prompts", "no labels"])
@pytest.mark.parametrize(("build", "shifts"), [(lambda: tiny.gpt2(loss_type=None), True), (tiny.t5, False)])
def test_shift_is_observed_whatever_the_labels(build, shifts: bool, hide: slice) -> None:
    pytest.importorskip("transformers")
    rows = tiny.language_rows(4)
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    batch["labels"][:, hide] = -100
    assert observe_shift(build(), batch) is shifts


def test_shift_of_one_label_per_row() -> None:
    assert observe_shift(tiny.regression(), {"x": torch.ones(2, 4), "labels": torch.ones(2)}) is False
