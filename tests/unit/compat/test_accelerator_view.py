"""`trainer.accelerator`: the names that others reach for."""

from __future__ import annotations

import copy
import math
import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from ostinato.compat.accelerator_processes import split_inputs
from ostinato.compat.accelerator_view import _REPLACEMENTS as REPLACEMENTS
from ostinato.compat.accelerator_view import AcceleratorView
from ostinato.core.errors import CheckpointError, NotSupportedError
from ostinato.strategies.precision import FullPrecision
from ostinato.strategies.single import SingleDevice
from tests.support import tiny
from tests.support.apis import Api


@pytest.fixture
def view() -> AcceleratorView:
    args = SimpleNamespace(
        world_size=1,
        process_index=0,
        local_process_index=0,
        mixed_precision="no",
        main_process_first=lambda local: nullcontext(),
    )
    trainer = SimpleNamespace(
        strategy=SingleDevice(torch.device("cpu")),
        precision=FullPrecision(),
        args=args,
        is_world_process_zero=lambda: True,
        is_local_process_zero=lambda: True,
    )
    return AcceleratorView(trainer)


def test_facts(view: AcceleratorView) -> None:
    assert view.device == torch.device("cpu")
    assert (view.num_processes, view.process_index, view.local_process_index) == (1, 0, 0)
    assert view.is_main_process
    assert view.is_local_main_process
    assert view.sync_gradients
    assert view.mixed_precision == "no"
    assert view.scaler is None


def test_tensors(view: AcceleratorView) -> None:
    tensor = torch.ones(2, 3)
    assert torch.equal(view.gather(tensor), tensor)
    assert torch.equal(view.gather_for_metrics((tensor, tensor))[1], tensor)
    assert torch.equal(view.pad_across_processes(tensor, dim=1, pad_index=-100), tensor)
    assert torch.equal(view.reduce({"a": tensor}, reduction="mean")["a"], tensor)
    view.wait_for_everyone()
    with view.main_process_first(), view.autocast():
        pass


def test_training_names(view: AcceleratorView) -> None:
    model = nn.Linear(2, 1)
    assert view.prepare(model) is model
    assert view.prepare(model, "optimizer") == (model, "optimizer")
    assert view.prepare_model(model) is model
    assert view.unwrap_model(model) is model
    view.backward(100 * model(torch.ones(1, 2)).sum())
    norm = view.clip_grad_norm_(model.parameters(), 1.0)
    assert norm > 100
    clipped = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert float(clipped.norm()) == pytest.approx(1.0, rel=1e-4)


def test_module_of_a_plain_model_is_not_a_wrapper(view: AcceleratorView) -> None:
    class Has(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(1, 1)

    model = Has()
    assert view.unwrap_model(model) is model


def test_print(view: AcceleratorView, capsys: pytest.CaptureFixture[str]) -> None:
    view.print("hello", "world")
    assert capsys.readouterr().out == "hello world\n"


def test_unknown_name(view: AcceleratorView) -> None:
    with pytest.raises(NotSupportedError, match=r"trainer\.accelerator has no 'join_inputs'") as caught:
        view.join_inputs([])
    assert "trainer.strategy" in caught.value.fix
    with pytest.raises(AttributeError):
        _ = view.deepspeed_config
    assert getattr(view, "fsdp_plugin", None) is None
    assert hasattr(view, "gather")
    assert not hasattr(view, "fsdp_plugin")


def test_error_pickles(view: AcceleratorView) -> None:
    with pytest.raises(NotSupportedError) as caught:
        _ = view.nothing
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_copies(view: AcceleratorView) -> None:
    """Somebody copies a trainer: looking for `__deepcopy__` must not end in a sentence."""
    assert copy.copy(view).num_processes == 1


# ----------------------------------------------------------------------------------- what it is asked it has to honour


def test_other_norms_are_honoured_or_refused(view: AcceleratorView) -> None:
    def model_with_gradients() -> nn.Module:
        model = tiny.seeded(nn.Linear, 3, 2)
        model(torch.ones(1, 3)).pow(2).sum().backward()
        return model

    expected, model = model_with_gradients(), model_with_gradients()
    wanted = nn.utils.clip_grad_norm_(expected.parameters(), 0.5, norm_type=math.inf)
    try:
        norm = view.clip_grad_norm_(model.parameters(), 0.5, norm_type=math.inf)  # type: ignore[arg-type]
    except NotSupportedError:
        return
    assert torch.equal(norm, wanted)
    assert torch.equal(model.weight.grad, expected.weight.grad)


def test_an_unknown_name_that_has_a_successor(view: AcceleratorView) -> None:
    with pytest.raises(NotSupportedError, match="has no 'flag_tensor'") as caught:
        view.flag_tensor()
    assert "set_trigger" in caught.value.fix


def test_state_and_gradient_state(view: AcceleratorView) -> None:
    assert view.state.deepspeed_plugin is None
    assert view.state.fsdp_plugin is None
    assert view.distributed_type == view.state.distributed_type == "NO"
    assert view.gradient_state.sync_gradients
    view.gradient_state._set_sync_gradients(False)
    assert not view.sync_gradients


def test_state_dict_of_the_model_inside(view: AcceleratorView) -> None:
    class DistributedDataParallel(nn.Module):  # known by its name
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    inner = nn.Linear(1, 1)
    assert view.unwrap_model(DistributedDataParallel(inner)) is inner
    assert view.get_state_dict(DistributedDataParallel(inner)).keys() == {"weight", "bias"}
    assert view.get_state_dict(DistributedDataParallel(inner), unwrap=False).keys() == {"module.weight", "module.bias"}


def test_a_prepared_loader_follows_seed_and_epoch(ours: Api) -> None:
    trainer = tiny_trainer(ours)
    rows = list(range(9))
    own = torch.Generator().manual_seed(3)
    loader = trainer.accelerator.prepare(DataLoader(rows, sampler=RandomSampler(rows, generator=own), batch_size=2))
    first = torch.cat(list(loader)).tolist()
    assert sorted(first) == rows
    assert torch.cat(list(loader)).tolist() == first
    loader.batch_sampler.sampler.set_epoch(1)
    assert torch.cat(list(loader)).tolist() != first


def test_what_is_saved_and_logged(ours: Api, tmp_path: Path) -> None:
    trainer = tiny_trainer(ours)
    trainer.accelerator.save({"a": torch.ones(2)}, tmp_path / "a.safetensors", safe_serialization=True)
    assert load_file(tmp_path / "a.safetensors")["a"].tolist() == [1.0, 1.0]
    trainer.accelerator.save({"a": 1, "b": [torch.ones(2)]}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt")["b"][0].tolist() == [1.0, 1.0]
    with pytest.raises(CheckpointError, match="object"):
        trainer.accelerator.save({"a": object()}, tmp_path / "b.pt")
    trainer.accelerator.log({"reward": 2.0})
    assert trainer.state.log_history[-1]["reward"] == 2.0


def tiny_trainer(api: Api) -> Any:
    return api.trainer(tiny.regression(), train_dataset=tiny.regression_rows())


# ---------------------------------------------------------------------------------------- all names of accelerate


def test_every_name_of_accelerate_is_offered_or_answered(ours: Api) -> None:
    accelerate = pytest.importorskip("accelerate")
    own = tiny_trainer(ours).accelerator
    names = {*dir(accelerate.Accelerator), *vars(accelerate.Accelerator(cpu=True))}
    for name in sorted(name for name in names if not name.startswith("_")):
        try:
            getattr(own, name)
        except NotSupportedError as error:
            assert name in REPLACEMENTS, f"{name}: {error}"  # an advice of its own


def test_functions_on_some_processes(view: AcceleratorView) -> None:
    for wrap in (view.on_main_process, view.on_local_main_process, view.on_last_process):
        assert wrap(lambda: 1)() == 1
    assert view.on_process(process_index=0)(lambda: 1)() == view.on_local_process(lambda: 1, 0)() == 1
    assert view.on_process(lambda: 1, 1)() is None


def test_inputs_are_split_as_by_accelerate() -> None:
    state = pytest.importorskip("accelerate.state").PartialState(cpu=True)
    everything = [[1, 2, 3, 4, 5], (1, 2), torch.arange(5), {"a": [1, 2, 3], "b": torch.arange(3)}]
    before = dict(vars(state))
    try:
        for count in (1, 2, 3):
            state.num_processes = count
            for index in range(count):
                state.process_index = index
                for inputs in everything:
                    for pads in (False, True) if isinstance(inputs, list) else (False,):  # theirs fails with others
                        with state.split_between_processes(copy.deepcopy(inputs), apply_padding=pads) as theirs:
                            ours = split_inputs(inputs, index, count, apply_padding=pads)
                            assert str(ours) == str(theirs), (inputs, index, count, pads)
    finally:
        vars(state).update(before)


def test_triggers_trackers_and_the_rest(ours: Api, tmp_path: Path) -> None:
    args = ours.args(report_to=["csv"])
    own = ours.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows()).accelerator
    own.set_trigger()
    assert [own.check_trigger(), own.check_trigger()] == [True, False]
    assert own.log_with == ["csv"] and own.get_tracker("csv") in own.trackers
    with pytest.raises(ValueError, match="there is no tracker 'wandb'"):
        own.get_tracker("wandb")
    own.save_model(tiny.regression(), tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert next(iter(own.skip_first_batches(DataLoader(range(6), batch_size=2), 2))).tolist() == [4, 5]
    with own.join_uneven_inputs([]), own.maybe_context_parallel(), own.profile() as profiler:
        pass
    assert profiler.key_averages() is not None
