"""Callbacks: the order of events, what they are given, and what their flags make the loop do."""

from __future__ import annotations

import pytest

from tests.support import tiny
from tests.support.parity import check_parity, run_both
from tests.support.records import EVENTS, assert_same

pytest.importorskip("transformers")

SIZES = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 2}
QUIET_SCHEDULE = {"logging_strategy": "no", "save_strategy": "no", "eval_strategy": "no"}


def fit(api, *callbacks, **arguments):
    trainer = {"callbacks": list(callbacks), "eval_dataset": tiny.regression_rows(10, seed=2)}
    return api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **{**SIZES, **arguments})


def everything(api):
    """A run in which every event comes."""
    schedule = {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "epoch"}
    trainer = fit(api, **schedule)
    trainer.predict(tiny.regression_rows(5))
    return api.recorders[-1].contexts


def test_order_of_events() -> None:
    def script(api):
        everything(api)

    theirs, _ = check_parity(script)
    assert {event.name for event in theirs.events} == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_keywords(event: str, both_runs) -> None:
    """Every event brings the same keywords; their values are of the same kind."""
    theirs, ours = both_runs
    names = [{e.keywords for e in record.events if e.name == event} for record in (theirs, ours)]
    assert names[0] == names[1]


@pytest.mark.parametrize("event", EVENTS)
def test_kinds_of_keywords(event: str, both_runs) -> None:
    """Model, optimizer, schedule and loaders are there when transformers has them, and None when it has not."""
    theirs, ours = both_runs
    for name, kind in theirs.result[event].items():
        assert (ours.result[event][name] == "NoneType") == (kind == "NoneType"), name


@pytest.fixture(scope="module")
def both_runs():
    return run_both(everything)


FLAGGED = [
    (event, flag)
    for event in ("on_step_begin", "on_step_end", "on_epoch_begin", "on_epoch_end", "on_train_begin")
    for flag in ("should_log", "should_evaluate", "should_save", "should_epoch_stop", "should_training_stop")
]


@pytest.mark.parametrize(("event", "flag"), FLAGGED)
def test_flag_set_by_a_callback(event: str, flag: str) -> None:
    """Raised once, at the fourth step (or at the start), on a run that by itself does nothing but train."""

    def script(api):
        def raise_flag(self, args, state, control, **kwargs):
            if state.global_step in (0, 4, 6) and not self.done and (state.global_step or event == "on_train_begin"):
                self.done = True
                setattr(control, flag, True)
            return control

        fit(api, type("Raise", (api.TrainerCallback,), {event: raise_flag, "done": False})(), **QUIET_SCHEDULE)

    theirs, ours = check_parity(script)
    assert [name for name in theirs.files if name.startswith("checkpoint-")] == [] or flag == "should_save"
    assert {n.split("/")[0] for n in theirs.files} == {n.split("/")[0] for n in ours.files}


@pytest.mark.parametrize("event", ["on_evaluate", "on_log", "on_save", "on_optimizer_step", "on_pre_optimizer_step"])
def test_stop_asked_for_elsewhere(event: str) -> None:
    def script(api):
        def stop(self, args, state, control, **kwargs):
            if state.global_step >= 4:
                control.should_training_stop = True

        callback = type("Stop", (api.TrainerCallback,), {event: stop})()
        fit(api, callback, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)

    theirs, _ = check_parity(script)
    assert theirs.state["global_step"] < 12


def test_stop_in_the_middle_of_an_accumulation() -> None:
    """The update at hand is abandoned. transformers still counts its losses into `train_loss`, over steps that do not
    include it; ours is the mean over the steps taken.
    """

    def script(api):
        def stop(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= 1

        callback = type("Stop", (api.TrainerCallback,), {"on_substep_end": stop})()
        fit(api, callback, gradient_accumulation_steps=3)

    theirs, ours = run_both(script)
    assert [event[:4] for event in ours.events] == [event[:4] for event in theirs.events]
    assert_same(theirs.weights, ours.weights, "weights")
    assert_same(theirs.state, ours.state, "state")
    assert_same(theirs.log_history[:-1], ours.log_history[:-1], "logs")
    assert ours.output.training_loss == ours.logged("loss")[0]
    assert theirs.output.training_loss > ours.output.training_loss


def test_flags_taken_back() -> None:
    """A callback may cancel what the stock schedule asked for."""

    def script(api):
        def cancel(self, args, state, control, **kwargs):
            if state.global_step % 4 == 0:
                control.should_log = control.should_evaluate = control.should_save = False

        callback = type("Cancel", (api.TrainerCallback,), {"on_step_end": cancel})()
        fit(api, callback, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)

    theirs, ours = check_parity(script)
    assert theirs.files
    assert {n.split("/")[0] for n in theirs.files} == {n.split("/")[0] for n in ours.files}


def test_control_returned_anew() -> None:
    """The control object that a callback returns replaces the one it was given."""

    def script(api):
        def replace(self, args, state, control, **kwargs):
            if state.global_step == 3:
                return api.TrainerControl(should_training_stop=True, should_log=True)
            return None

        fit(api, type("Replace", (api.TrainerCallback,), {"on_step_end": replace})())

    theirs, _ = check_parity(script)
    assert theirs.state["global_step"] == 3


def test_log_changed_by_a_callback() -> None:
    """`logs` is handed over as it is: what a callback adds is seen by the next, not by the history."""

    def script(api):
        seen = []

        def add(self, args, state, control, logs=None, **kwargs):
            logs["added"] = 1.0

        def look(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

        add_class = type("Add", (api.TrainerCallback,), {"on_log": add})
        look_class = type("Look", (api.TrainerCallback,), {"on_log": look})
        fit(api, add_class(), look_class(), num_train_epochs=1)
        return seen

    check_parity(script)


def test_learning_rate_changed_by_a_callback() -> None:
    def script(api):
        def halve(self, args, state, control, optimizer=None, **kwargs):
            if state.global_step == 4:
                for group in optimizer.param_groups:
                    group["lr"] *= 0.5

        fit(api, type("Halve", (api.TrainerCallback,), {"on_step_end": halve})(), lr_scheduler_type="constant")

    check_parity(script)


def test_gradients_seen_by_callbacks() -> None:
    """Before the optimizer's step gradients are there, clipped; at the end of the step they are gone."""

    def script(api):
        norms = []

        def look(name):
            def on_event(self, args, state, control, model=None, **kwargs):
                grads = [p.grad for p in model.parameters() if p.grad is not None]
                norms.append((name, len(grads), sum(float(g.square().sum()) for g in grads)))

            return on_event

        names = ("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end")
        callback = type("Look", (api.TrainerCallback,), {name: look(name) for name in names})()
        fit(api, callback, gradient_accumulation_steps=2, max_grad_norm=0.1, num_train_epochs=1)
        return norms

    check_parity(script)


def test_adding_and_removing_callbacks() -> None:
    def script(api):
        class Mine(api.TrainerCallback):
            pass

        trainer = api.trainer(tiny.regression(), api.args())
        before = [type(c).__name__ for c in trainer.callback_handler.callbacks]
        trainer.add_callback(Mine)
        instance = Mine()
        trainer.add_callback(instance)
        popped = trainer.pop_callback(Mine)
        trainer.remove_callback(instance)
        after = [type(c).__name__ for c in trainer.callback_handler.callbacks]
        return before, type(popped).__name__, popped is instance, after, trainer.pop_callback(Mine)

    theirs, ours = run_both(script)
    assert_same(theirs.result[1:3], ours.result[1:3])
    assert ours.result[0] == ours.result[3]
    assert ours.result[4] is None


def test_callback_class_instead_of_an_instance() -> None:
    def script(api):
        calls = []

        class Mine(api.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                calls.append(state.global_step)

        fit(api, Mine, num_train_epochs=1)
        return calls

    check_parity(script)


def test_state_during_the_run() -> None:
    """What callbacks read from `state` at every step."""

    def script(api):
        seen = []
        fields = ("epoch", "global_step", "max_steps", "num_train_epochs", "logging_steps", "eval_steps", "save_steps")
        fields += ("train_batch_size", "is_world_process_zero", "is_local_process_zero", "is_hyper_param_search")

        def look(self, args, state, control, **kwargs):
            seen.append([getattr(state, name) for name in fields] + [len(state.log_history)])

        names = ("on_train_begin", "on_step_end", "on_evaluate", "on_train_end")
        callback = type("Look", (api.TrainerCallback,), dict.fromkeys(names, look))()
        fit(api, callback, eval_strategy="steps", eval_steps=0.25, logging_steps=0.2)
        return seen

    check_parity(script)
