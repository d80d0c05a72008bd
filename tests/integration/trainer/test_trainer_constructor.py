"""What the constructor takes, refuses and offers under other names."""

from __future__ import annotations

import inspect

import pytest
import torch

import ostinato
from ostinato.loss.smoothing import LabelSmoother
from tests.support import tiny
from tests.support.apis import Api, guest, load_library

ROWS = tiny.regression_rows(8)


class Padding:
    """The least of a tokenizer."""

    model_input_names = ["x"]

    def pad(self, rows, **options):
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}


# ----------------------------------------------------------------------------------------------------------- refused


def test_no_model(ours: Api) -> None:
    for kind in (RuntimeError, ValueError, ostinato.OstinatoError):
        with pytest.raises(kind, match="either a model or model_init"):
            ours.Trainer(args=ours.args())


def test_model_and_model_init(ours: Api) -> None:
    with pytest.raises(RuntimeError, match="not both"):
        ours.Trainer(tiny.regression(), ours.args(), model_init=tiny.regression)


def test_evaluation_without_data(ours: Api) -> None:
    with pytest.raises(ValueError, match="eval_dataset"):
        ours.Trainer(tiny.regression(), ours.args(eval_strategy="steps"), train_dataset=ROWS)


def test_stream_without_max_steps(ours: Api) -> None:
    stream = tiny.StreamDataset(ROWS)
    with pytest.raises(ValueError, match="max_steps"):
        ours.Trainer(tiny.regression(), ours.args(), train_dataset=stream)
    ours.Trainer(tiny.regression(), ours.args(max_steps=2), train_dataset=stream)


def test_optimizer_of_another_model(ours: Api) -> None:
    model = tiny.regression()
    optimizers = (torch.optim.SGD(model.parameters(), lr=0.1), None)
    with pytest.raises(RuntimeError, match="model_init"):
        ours.Trainer(None, ours.args(), model_init=tiny.regression, optimizers=optimizers)


def test_two_ways_to_name_an_optimizer(ours: Api) -> None:
    model = tiny.regression()
    optimizers = (torch.optim.SGD(model.parameters(), lr=0.1), None)
    with pytest.raises(ValueError, match="optimizer_cls_and_kwargs"):
        ours.Trainer(
            model, ours.args(), optimizers=optimizers, optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 1.0})
        )


@pytest.mark.parametrize(
    ("model_init", "message"), [(lambda: None, "should not return None"), (lambda a, b: None, "0 or 1 argument")]
)
def test_model_init_that_makes_none(ours: Api, model_init, message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        ours.Trainer(args=ours.args(), model_init=model_init)


def test_training_without_data(ours: Api) -> None:
    trainer = ours.Trainer(tiny.regression(), ours.args())
    with pytest.raises(ValueError, match="requires a train_dataset"):
        trainer.train()
    with pytest.raises(ValueError, match="requires an eval_dataset"):
        trainer.evaluate()
    assert trainer.is_in_train is False


def test_failing_model_init_leaves_no_trace(ours: Api) -> None:
    """The first call, by the constructor, works; the one of `train()` does not."""
    calls = []

    def model_init():
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("mine")
        return tiny.regression()

    trainer = ours.Trainer(args=ours.args(), model_init=model_init, train_dataset=ROWS)
    with pytest.raises(KeyError, match="mine"):
        trainer.train()
    assert trainer.is_in_train is False


# ------------------------------------------------------------------------------------------------------------- names


def test_positional_order_as_transformers() -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = inspect.signature(load_library("transformers").Trainer.__init__).parameters
    ours = inspect.signature(ostinato.Trainer.__init__).parameters
    positional = [name for name, one in ours.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == list(theirs)
    assert [ours[name].default for name in positional[1:]] == [one.default for one in list(theirs.values())[1:]]


def test_given_by_position(ours: Api) -> None:
    model, args, collator, tokenizer = tiny.regression(), ours.args(), list, Padding()
    trainer = ours.Trainer(model, args, collator, ROWS, ROWS[:2], tokenizer)
    assert (trainer.model, trainer.args, trainer.data_collator) == (model, args, collator)
    assert (trainer.train_dataset, trainer.eval_dataset, trainer.processing_class) == (ROWS, ROWS[:2], tokenizer)
    assert trainer.model_wrapped is model


def test_tokenizer_is_the_processing_class(ours: Api) -> None:
    tokenizer, other = Padding(), Padding()
    trainer = ours.Trainer(tiny.regression(), ours.args(), tokenizer=tokenizer)
    assert trainer.processing_class is tokenizer
    assert trainer.tokenizer is tokenizer
    assert trainer.callback_handler.processing_class is tokenizer
    trainer.tokenizer = other
    assert trainer.processing_class is other


def test_default_collator(ours: Api) -> None:
    assert ours.Trainer(tiny.regression(), ours.args()).data_collator is ours.default_data_collator
    padded = ours.Trainer(tiny.regression(), ours.args(), processing_class=Padding())
    assert isinstance(padded.data_collator, ours.DataCollatorWithPadding)


def test_properties_with_setters(ours: Api) -> None:
    def loss(outputs, labels, num_items_in_batch=None):
        return outputs["logits"].sum()

    trainer = ours.Trainer(tiny.regression(), ours.args(label_smoothing_factor=0.1), compute_loss_func=loss)
    assert trainer.compute_loss_func is loss
    assert trainer.label_smoother.epsilon == 0.1
    assert trainer.model_accepts_loss_kwargs is False
    trainer.compute_loss_func, trainer.label_smoother, trainer.model_accepts_loss_kwargs = None, None, True
    assert trainer.compute_loss_func is None
    assert trainer.label_smoother is None
    assert trainer.model_accepts_loss_kwargs is True
    smoother = LabelSmoother(0.3)
    trainer.label_smoother = smoother
    assert trainer.label_smoother is smoother


def test_setters_are_heeded(ours: Api) -> None:
    """A loss function set after construction is the one that trains."""
    called = []

    def loss(outputs, labels, num_items_in_batch=None):
        called.append(labels.shape)
        return outputs["logits"].pow(2).mean()

    trainer = ours.trainer(tiny.regression(), ours.args(max_steps=2), train_dataset=ROWS)
    trainer.compute_loss_func = loss
    trainer.train()
    assert len(called) == 2


def test_first_callback_is_the_flow(ours: Api) -> None:
    class Mine(ours.TrainerCallback):
        pass

    trainer = ours.Trainer(tiny.regression(), ours.args(), callbacks=[Mine])
    names = trainer.callback_handler.callback_list.splitlines()
    assert names[:2] == ["DefaultFlowCallback", "Mine"]
    mine = trainer.pop_callback(Mine)
    assert isinstance(mine, Mine)
    trainer.add_callback(mine)
    trainer.remove_callback(mine)
    assert trainer.pop_callback(Mine) is None


def test_model_init_makes_a_fresh_model_for_every_run(ours: Api) -> None:
    trainer = ours.trainer(None, ours.args(max_steps=2), model_init=lambda: tiny.Regression(), train_dataset=ROWS)
    first = trainer.train()
    model = trainer.model
    second = trainer.train()
    assert trainer.model is not model
    assert second.training_loss == first.training_loss


def test_accelerator_is_a_view(ours: Api) -> None:
    trainer = ours.Trainer(tiny.regression(), ours.args())
    assert trainer.accelerator.device == trainer.args.device
    assert trainer.accelerator.is_main_process


# -------------------------------------------------------------------------------------------------------- model_init


def test_what_nobody_has_set_follows_the_model_that_is_trained(ours: Api) -> None:
    """`model_init` may return another class; the first model is made by the constructor."""

    class Pairs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x, start_labels=None, labels=None, return_loss=True, **loss_kwargs):
            return {"loss": (x @ self.weight - labels).square().mean()}

    models = iter([tiny.regression(), Pairs()])
    trainer = ours.trainer(None, ours.args(max_steps=1), train_dataset=ROWS, model_init=lambda: next(models))
    assert (trainer.label_names, trainer.can_return_loss, trainer.model_accepts_loss_kwargs) == (
        ["labels"],
        False,
        False,
    )
    trainer.train()
    assert trainer.label_names == ["start_labels", "labels"]
    assert trainer.can_return_loss and trainer.model_accepts_loss_kwargs


@pytest.mark.parametrize("shifts", [False, True])
def test_how_smoothed_labels_are_shifted_may_be_set(ours: Api, shifts: bool) -> None:
    args = ours.args(max_steps=1, label_smoothing_factor=0.1)
    trainer = ours.trainer(None, args, train_dataset=tiny.language_rows(), model_init=tiny.tied)
    smoother = trainer.label_smoother
    trainer.loss_objective.smoother_shifts = shifts
    trainer.train()
    assert trainer.loss_objective.smoother_shifts is shifts
    assert trainer.label_smoother is smoother
