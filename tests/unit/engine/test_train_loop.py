"""The training loop alone, with a stand-in for the trainer."""

from __future__ import annotations

import math
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import ReportSettings
from ostinato.callbacks.events import EVENTS
from ostinato.core.errors import NonFiniteError
from ostinato.core.state import TrainerControl, TrainerState
from ostinato.core.timing import TimeLedger
from ostinato.engine.ballot import Divisors
from ostinato.engine.finite_guard import NonFiniteGuard
from ostinato.engine.flops import FlopCounter
from ostinato.engine.guarded_step import take_step
from ostinato.engine.loop import train
from ostinato.engine.meters import LossMeter, Meters
from ostinato.engine.plan import Plan
from ostinato.engine.position import Position
from ostinato.engine.run import Run, RunOptions
from ostinato.engine.step_weights import StepWeights
from ostinato.engine.updates import Update, UpdateReader
from ostinato.loss.objective import Objective
from ostinato.strategies.precision import FullPrecision
from ostinato.strategies.single import SingleDevice


class Fake:
    """All that the loop asks of a trainer."""

    def __init__(self, obey=lambda event, fake: None) -> None:
        self.args, self.state, self.control = None, TrainerState(), TrainerControl()
        self.model = self.model_wrapped = nn.Linear(1, 1, bias=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)
        self.strategy, self.precision = SingleDevice(torch.device("cpu")), FullPrecision()
        self.current_gradient_accumulation_steps = 0
        self.events: list[str] = []
        self.batches: list[float] = []
        self.reports: list[tuple] = []
        self.callback_handler = SimpleNamespace(**{name: self._told(name, obey) for name in EVENTS})

    def _told(self, name, obey):
        def tell(args, state, control, **details):
            self.events.append(name.removeprefix("on_"))
            obey(name, self)
            return control

        return tell

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        return list(islice(epoch_iterator, num_batches)), None

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.batches.append(inputs["x"])
        loss = model(torch.tensor([[inputs["x"]]])).sum() / self.current_gradient_accumulation_steps
        loss.backward()
        return loss.detach()

    def _clip_grad_norm(self, model):
        return self.strategy.clip([p.grad for p in model.parameters()], math.inf)

    def _get_learning_rate(self):
        return 0.1

    def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch, ignore, started, learning_rate=None):
        self.events.append("report")
        self.reports.append((self.state.global_step, epoch, learning_rate))
        self.control.should_log = self.control.should_evaluate = self.control.should_save = False


SETTINGS = ReportSettings(
    isolate_rng=True,
    best_decides_saving=False,
    load_best_at_end=False,
    nonfinite_in_train_loss=False,
    evaluates_first=False,
)


def run_of(
    batches: int = 3,
    *,
    accumulation: int = 1,
    epochs: float = 1,
    data=None,
    plan: Plan | None = None,
    guard: NonFiniteGuard | None = None,
    report_always: bool = False,
    processes: int = 1,
    **reading,
) -> Run:
    loader = data if data is not None else [{"x": float(number + 1)} for number in range(batches)]
    plan = plan or Plan.for_length(
        batches,
        epochs=epochs,
        max_steps=-1,
        accumulation=accumulation,
        max_grad_norm=None,
        rows_per_update=1,
        rows_per_epoch=None,
    )

    def weigh(samples, counts):
        return [1.0] * len(samples)

    return Run(
        plan,
        RunOptions(SETTINGS, report_always=report_always),
        UpdateReader(plan, loader, StepWeights(weigh), processes, TimeLedger(), **reading),
        Meters(LossMeter(torch.device("cpu")), Objective(), FlopCounter(None, None)),
        guard or NonFiniteGuard(patience=2, rows_of=lambda epoch, batches: None),
    )


STEP = ["step_begin", "pre_optimizer_step", "optimizer_step", "step_end"]


def accumulated(micro_batches: int) -> list[str]:
    return ["step_begin", *["substep_end"] * (micro_batches - 1), *STEP[1:]]


def at(step: int, event: str, flag: str):
    """Raise a flag when an event comes after so many steps."""

    def obey(name, fake):
        if name == event and fake.state.global_step == step:
            setattr(fake.control, flag, True)

    return obey


# ------------------------------------------------------------------------------------------------------------ order


def test_order_of_events() -> None:
    fake = Fake()
    train(fake, run_of(2, epochs=2))
    epoch = ["epoch_begin", *STEP, *STEP, "epoch_end"]
    assert fake.events == epoch * 2
    assert fake.batches == [1, 2, 1, 2]
    assert (fake.state.global_step, fake.state.epoch) == (4, 2.0)


def test_order_of_events_when_accumulating() -> None:
    """Five batches, two to the update: the last update of the epoch is short."""
    fake = Fake()
    counts: list[int] = []
    fake.training_step = lambda model, inputs, n=None, own=fake.training_step: (
        counts.append(fake.current_gradient_accumulation_steps) or own(model, inputs, n)
    )
    train(fake, run_of(5, accumulation=2))
    updates = [*accumulated(2), *accumulated(2), *accumulated(1)]
    assert fake.events == ["epoch_begin", *updates, "epoch_end"]
    assert counts == [2, 2, 2, 2, 1]
    assert fake.state.epoch == 1.0


def test_reports_when_asked() -> None:
    fake = Fake(at(1, "on_step_end", "should_log"))
    train(fake, run_of(2))
    assert fake.events == ["epoch_begin", *STEP, "report", *STEP, "epoch_end"]
    assert fake.reports == [(1, 0, 0.1)]


def test_reports_at_the_end_of_an_epoch() -> None:
    fake = Fake(at(2, "on_epoch_end", "should_save"))
    train(fake, run_of(2))
    assert fake.events[-2:] == ["epoch_end", "report"]


def test_reports_always() -> None:
    fake = Fake()
    train(fake, run_of(2, report_always=True))
    assert fake.events.count("report") == 3  # two steps, one epoch


def test_progress_within_an_epoch() -> None:
    seen: list[float] = []
    fake = Fake(lambda name, fake: seen.append(fake.state.epoch) if name == "on_step_end" else None)
    train(fake, run_of(4, epochs=2))
    assert seen == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]


# ------------------------------------------------------------------------------------------------------------- flags


def test_stop_in_the_middle() -> None:
    fake = Fake(at(2, "on_step_end", "should_training_stop"))
    train(fake, run_of(3, epochs=5))
    assert fake.state.global_step == 2
    assert fake.events[-2:] == ["step_end", "epoch_end"]


def test_stop_after_an_epoch() -> None:
    fake = Fake(at(3, "on_epoch_end", "should_training_stop"))
    train(fake, run_of(3, epochs=5))
    assert fake.state.global_step == 3


def test_epoch_stop_goes_on_with_the_next() -> None:
    def obey(name, fake):
        if name == "on_epoch_begin":
            fake.control.should_epoch_stop = False
        if name == "on_step_end" and fake.state.global_step == 1:
            fake.control.should_epoch_stop = True

    fake = Fake(obey)
    train(fake, run_of(2, epochs=2))
    assert fake.events.count("epoch_end") == 2
    assert fake.batches[0] == 1
    assert fake.events[: len(STEP) + 2] == ["epoch_begin", *STEP, "epoch_end"]


@pytest.mark.parametrize("flag", ["should_training_stop", "should_epoch_stop"])
def test_update_is_given_up_in_the_middle(flag: str) -> None:
    """Asked to stop between two micro-batches: half an update must not reach the weights, nor a later one."""

    def obey(name, fake):
        if name == "on_substep_end" and fake.state.global_step == 1:
            setattr(fake.control, flag, True)

    fake, run = Fake(obey), run_of(4, accumulation=2)
    kept: list[torch.Tensor] = []
    fake.precision = SimpleNamespace(
        unscale=lambda optimizer: None,
        step=lambda optimizer: (optimizer.step(), kept.append(fake.model.weight.detach().clone()), True)[-1],
    )
    train(fake, run)
    assert fake.state.global_step == 1
    assert fake.events == ["epoch_begin", *accumulated(2), "step_begin", "substep_end", "epoch_end"]
    assert torch.equal(fake.model.weight, kept[-1])
    assert fake.model.weight.grad is None
    assert run.meters.loss.held == []


def test_returned_control_is_adopted() -> None:
    fake = Fake()
    other = TrainerControl(should_training_stop=True)
    fake.callback_handler.on_step_end = lambda args, state, control, **details: other
    train(fake, run_of(3))
    assert fake.control is other
    assert fake.state.global_step == 1


# ----------------------------------------------------------------------------------------------------------- numbers


def test_losses_are_summed_and_weights_move() -> None:
    fake, run = Fake(), run_of(2)
    weight = fake.model.weight.item()
    train(fake, run)
    # Gradients are the inputs, 1 and 2; the rate is 0.1.
    assert fake.model.weight.item() == pytest.approx(weight - 0.3)
    assert run.meters.loss.pending.item() == pytest.approx(weight + 2 * (weight - 0.1), rel=1e-5)
    assert run.step.grad_norm == 2
    assert run.step.learning_rate == 0.1


def test_optimizer_is_read_at_the_moment() -> None:
    def swap(name, fake):
        if name == "on_step_begin" and fake.state.global_step == 1:
            fake.optimizer = torch.optim.SGD(fake.model.parameters(), lr=0.0)

    fake = Fake(swap)
    weight = fake.model.weight.item()
    train(fake, run_of(3))
    assert fake.model.weight.item() == pytest.approx(weight - 0.1)


def test_skipped_step_does_not_move_the_schedule() -> None:
    fake = Fake()
    fake.precision = SimpleNamespace(unscale=lambda optimizer: None, step=lambda optimizer: False)
    before = fake.lr_scheduler.last_epoch
    train(fake, run_of(2))
    assert fake.lr_scheduler.last_epoch == before
    assert fake.state.global_step == 2


def test_update_that_is_not_finite_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"x": 1.0}, {"x": math.nan}, {"x": 2.0}]
    fake, run = Fake(), run_of(3, data=data)
    weight = fake.model.weight.item()
    train(fake, run)
    assert fake.model.weight.item() == pytest.approx(weight - 0.3)
    assert fake.events.count("step_end") == 3
    assert fake.lr_scheduler.last_epoch == 2
    assert "step 2" in capsys.readouterr().err
    assert math.isfinite(run.meters.loss.pending.item())


def test_patience_ends_the_run() -> None:
    data = [{"x": 1.0}, {"x": math.nan}, {"x": math.nan}, {"x": 2.0}]
    fake = Fake()
    with pytest.raises(NonFiniteError, match="step 3"):
        train(fake, run_of(4, data=data))
    assert torch.isfinite(fake.model.weight).all()


# ---------------------------------------------------------------------------------------------------- where to start


@pytest.mark.parametrize("done", range(7))
def test_begins_where_the_run_stands(done: int) -> None:
    fake = Fake()
    fake.state.global_step = done
    train(fake, run_of(3, epochs=2, position=Position(epoch=done // 3, batch=done % 3)))
    assert fake.batches == [1, 2, 3, 1, 2, 3][done:]
    assert fake.state.global_step == 6


def test_begins_in_the_middle_when_accumulating() -> None:
    fake = Fake()
    fake.state.global_step = 4  # three updates to the epoch of five batches: the second of the second epoch comes next
    train(fake, run_of(5, accumulation=2, epochs=2, position=Position(epoch=1, batch=2)))
    assert fake.batches == [3, 4, 5]
    assert fake.state.epoch == 2.0


def test_place_follows_the_data() -> None:
    seen: list[tuple[int, int]] = []
    run = run_of(3, accumulation=2, epochs=2)
    fake = Fake(
        lambda name, fake: (
            seen.append((run.updates.position.epoch, run.updates.position.batch)) if name == "on_step_end" else None
        )
    )
    train(fake, run)
    assert seen == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert (run.updates.position.epoch, run.updates.position.batch) == (2, 0)


def test_place_after_an_epoch_that_was_cut_short() -> None:
    """A callback ended the first epoch after one of three batches: next comes the second, from its start."""

    def obey(name, fake):
        fake.control.should_epoch_stop = name == "on_step_end" and fake.state.global_step == 1

    fake, run = Fake(obey), run_of(3, epochs=2)
    train(fake, run)
    assert fake.batches == [1, 1, 2, 3]


def test_streams_of_a_checkpoint_are_put_back_once_the_data_stand_where_they_stood() -> None:
    order: list[str] = []
    fake = Fake(lambda name, fake: order.append(name))
    fake.get_batch_samples = lambda batches, count, device, own=fake.get_batch_samples: (
        order.append("fetch") or own(batches, count, device)
    )
    train(fake, run_of(3, position=Position(batch=1), restore_streams=lambda: order.append("restore")))
    assert order[:4] == ["on_epoch_begin", "fetch", "restore", "on_step_begin"]
    assert order.count("restore") == 1


def test_stream_that_gives_nothing_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    from ostinato.core.notices import forget_notices

    forget_notices()
    once = iter([{"x": 1.0}])

    class Exhausted:
        def __iter__(self):
            return once

    plan = Plan.for_length(
        None, epochs=1, max_steps=5, accumulation=1, max_grad_norm=None, rows_per_update=1, rows_per_epoch=None
    )
    fake = Fake()
    train(fake, run_of(data=Exhausted(), plan=plan))
    assert fake.state.global_step == 1
    assert "no batch at all" in capsys.readouterr().err


def test_epochs_are_announced_to_the_loader() -> None:
    class Loader(list):
        announced: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.announced.append(epoch)

    loader = Loader([{"x": 1.0}])
    train(Fake(), run_of(1, epochs=3, data=loader))
    assert loader.announced == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------ parameters


def test_parameters_are_those_of_the_model_whatever_is_done_to_it() -> None:
    """Asked for after every report; what is compared is where they are, since asking the model takes long."""

    def added(model: nn.Module) -> None:
        model.extra = nn.Linear(2, 2)

    def replaced(model: nn.Module) -> None:
        model.body.weight = nn.Parameter(torch.zeros_like(model.body.weight))

    def taken_out(model: nn.Module) -> None:
        del model.extra

    def shared(model: nn.Module) -> None:
        model.twin = model.body

    def tied(model: nn.Module) -> None:
        model.tied = model.body.weight

    def put_in_by_hand(model: nn.Module) -> None:
        model.body._parameters["bias"] = nn.Parameter(torch.zeros(2))

    def in_a_circle(model: nn.Module) -> None:
        model.body._modules["parent"] = model

    model = nn.Module()
    model.body = nn.Linear(2, 2, bias=False)
    run = run_of()
    for change in (lambda model: None, added, replaced, taken_out, shared, tied, put_in_by_hand, in_a_circle):
        change(model)
        run.parameters.refresh(model)
        assert list(map(id, run.parameters.all)) == list(map(id, model.parameters()))


class Overflowing(FullPrecision):
    """Its scale is still to be found."""

    def has_overflowed(self, optimizer) -> bool:
        return True


class OfTwo(SingleDevice):
    """Another process has so many losses that are not finite."""

    def __init__(self, bad_elsewhere: int) -> None:
        super().__init__(torch.device("cpu"))
        self.bad_elsewhere = bad_elsewhere

    def sum(self, value):
        return value + self.bad_elsewhere


@pytest.mark.parametrize(("own", "elsewhere"), [(1.0, 0), (math.nan, 0), (1.0, 1)])
def test_processes_agree_on_what_an_overflow_is(own: float, elsewhere: int) -> None:
    """A NaN loss in one process makes the gradients of all NaN: none of them may take it for an overflow."""
    fake, run = Fake(), run_of(processes=2, guard=NonFiniteGuard(patience=5, rows_of=lambda epoch, batches: None))
    fake.precision, fake.strategy = Overflowing(), OfTwo(elsewhere)
    run.guard.judges_loss = False
    run.step.grad_norm = torch.tensor(math.nan)
    run.meters.loss.hold(torch.tensor(own))
    update = Update([{"x": 1.0}], None, Divisors([1.0], 1, lambda: 1.0), 0.1, 0, 0)
    take_step(fake, run, update)
    is_overflow = math.isfinite(own) and not elsewhere
    assert (run.guard.overflows, run.guard.refused) == ((1, 0) if is_overflow else (0, 1))
    assert run.meters.loss.pending.item() == (own if is_overflow else 0.0)
