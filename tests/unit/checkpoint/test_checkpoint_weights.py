"""Weights of plain modules: tied, turned, half precision, and nothing but a perfect fit is loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from ostinato.checkpoint.weights import ALIASES, load_weights, save_model
from ostinato.core.errors import CheckpointError
from ostinato.core.notices import forget_notices


class Tied(nn.Module):
    """An embedding that is its own output layer, a buffer, half precision, a weight turned in memory."""

    def __init__(self, *, seed: int, tie: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        if tie:
            self.head.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(4)
        self.small = nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.turned = nn.Parameter(torch.randn(3, 5).t())
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("also_empty", torch.zeros(0))
        self.register_buffer("scratch", torch.randn(2), persistent=False)


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left
    )


def test_a_tied_module_comes_back(tmp_path: Path):
    model, other = Tied(seed=1), Tied(seed=2)
    save_model(model, tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    load_weights(other, tmp_path)
    assert equal(weights_of(model), weights_of(other))
    assert other.head.weight is other.embedding.weight
    assert other.turned.stride() == model.turned.stride()


def test_tied_weights_are_stored_once_with_a_table(tmp_path: Path):
    save_model(Tied(seed=1), tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert json.loads(file.metadata()[ALIASES]) == {"head.weight": "embedding.weight"}
        assert file.metadata()["format"] == "pt"
    assert "head.weight" not in names
    assert {"embedding.weight", "empty", "also_empty", "norm.running_mean", "small"} <= names


def test_weights_tied_in_the_file_must_be_tied_in_the_model(tmp_path: Path):
    save_model(Tied(seed=1), tmp_path)
    other = Tied(seed=2, tie=False)
    before = weights_of(other)
    with pytest.raises(CheckpointError, match=r"tied in the checkpoint but not in the model: head\.weight"):
        load_weights(other, tmp_path)
    assert equal(weights_of(other), before), "the model was touched"


def test_weights_tied_in_the_model_must_be_equal_in_the_file(tmp_path: Path):
    separate = Tied(seed=1, tie=False)
    save_model(separate, tmp_path)
    other = Tied(seed=2)
    before = weights_of(other)
    with pytest.raises(CheckpointError, match=r"embedding\.weight, head\.weight are tied in the model and different"):
        load_weights(other, tmp_path)
    assert equal(weights_of(other), before)
    with torch.no_grad():
        separate.head.weight.copy_(separate.embedding.weight)
    save_model(separate, tmp_path)
    load_weights(other, tmp_path)
    assert torch.equal(other.head.weight, separate.head.weight)


def test_views_that_overlap_come_back(tmp_path: Path):
    class Overlapping(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            base = torch.arange(8.0) + seed
            self.register_buffer("base", base)
            self.register_buffer("start", base[:4])

    save_model(Overlapping(1), tmp_path)
    other = Overlapping(5)
    load_weights(other, tmp_path)
    assert torch.equal(other.base, torch.arange(8.0) + 1)
    assert torch.equal(other.start, other.base[:4])


def test_a_given_state_is_saved_instead(tmp_path: Path):
    model = Tied(seed=1)
    state = {name: torch.ones_like(value) for name, value in model.state_dict().items()}
    save_model(model, tmp_path, state_dict=state)
    load_weights(model, tmp_path)
    assert equal(weights_of(model), state)


def test_extra_state_goes_through_the_module(tmp_path: Path):
    class Extra(nn.Module):
        extra: Any = None

        def get_extra_state(self) -> Any:
            return self.extra

        def set_extra_state(self, state: Any) -> None:
            self.extra = state

    model, other = Extra(), Extra()
    with pytest.raises(CheckpointError, match="_extra_state"):
        save_model(model, tmp_path)
    model.extra, other.extra = torch.tensor(5), torch.tensor(0)
    save_model(model, tmp_path)
    load_weights(other, tmp_path)
    assert other.extra == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.add_module("added", nn.Linear(1, 1)), r"not in the checkpoint: added\.weight, added\.bias"),
        (lambda m: m.__delattr__("body"), r"not in the model: body\.bias, body\.weight"),
        (lambda m: m.add_module("body", nn.Linear(4, 5)), r"of another shape: body\.weight \(checkpoint \[4, 4\]"),
        (lambda m: m.register_buffer("count", torch.tensor(1.0)), r"another kind of number: count \(checkpoint int64"),
    ],
)
def test_what_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path: Path, change: Any, reason: str):
    save_model(Tied(seed=1), tmp_path)
    other = Tied(seed=2)
    change(other)
    before = weights_of(other)
    with pytest.raises(CheckpointError, match=reason):
        load_weights(other, tmp_path)
    assert equal(weights_of(other), before)


def test_long_lists_are_cut(tmp_path: Path):
    save_model(nn.Linear(1, 1), tmp_path)
    with pytest.raises(CheckpointError, match="and 30 more"):
        load_weights(nn.Sequential(*(nn.Linear(1, 1) for _ in range(20))), tmp_path)


def test_another_precision_is_said(tmp_path: Path, capsys: pytest.CaptureFixture):
    forget_notices()
    save_model(nn.Linear(3, 3).to(torch.bfloat16), tmp_path)
    load_weights(nn.Linear(3, 3), tmp_path)
    assert capsys.readouterr().err.count("converted from bfloat16 to float32") == 1


def test_files_in_several_shards(tmp_path: Path):
    model, other = Tied(seed=1), Tied(seed=2)
    save_model(model, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(state)
    table = {}
    for number, part in enumerate((names[:4], names[4:])):
        file = f"model-{number}.safetensors"
        save_file({name: state[name] for name in part}, tmp_path / file)
        table.update(dict.fromkeys(part, file))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    load_weights(other, tmp_path)
    assert equal(weights_of(model), weights_of(other))

    index.write_text(json.dumps({"weight_map": {**table, "ghost": "model-0.safetensors"}}))
    with pytest.raises(CheckpointError, match="disagree about ghost"):
        load_weights(other, tmp_path)
    for path in ("../model-0.safetensors", "/etc/passwd", 3):
        index.write_text(json.dumps({"weight_map": {**table, names[0]: path}}))
        with pytest.raises(CheckpointError, match="leads out"):
            load_weights(other, tmp_path)
    for content in ("[]", "{}", "nonsense"):
        index.write_text(content)
        with pytest.raises(CheckpointError, match=r"index\.json"):
            load_weights(other, tmp_path)
    index.write_text(json.dumps({"weight_map": table}))
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-1\.safetensors is missing"):
        load_weights(other, tmp_path)


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_truncated_file_is_named(tmp_path: Path, size: int):
    save_model(Tied(seed=1), tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_weights(Tied(seed=2), tmp_path)


@pytest.mark.parametrize("table", ["[]", "nonsense", '{"head.weight": "not there"}', '{"head.weight": ["x"]}'])
def test_a_broken_table_of_ties_is_refused(tmp_path: Path, table: str):
    model = Tied(seed=1)
    save_model(model, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file(state, tmp_path / "model.safetensors", metadata={ALIASES: table})
    with pytest.raises(CheckpointError, match="tied weights"):
        load_weights(model, tmp_path)


def test_pickles_are_not_opened(tmp_path: Path):
    with pytest.raises(CheckpointError, match="neither"):
        load_weights(Tied(seed=1), tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(CheckpointError, match=r"only pytorch_model\.bin"):
        load_weights(Tied(seed=1), tmp_path)


def test_savers_are_asked_by_what_they_can_do(tmp_path: Path):
    calls: list[Any] = []

    class Saver(nn.Module):
        def save_pretrained(self, directory: Path, **rest: Any) -> None:
            calls.append(("model", directory, rest))

    class Processing:
        def save_pretrained(self, directory: Path) -> None:
            calls.append(("processing", directory))

    save_model(Saver(), tmp_path, processing_class=Processing())
    save_model(Saver(), tmp_path, state_dict={"a": torch.ones(1)}, processing_class=object())
    assert calls[:2] == [("model", tmp_path, {}), ("processing", tmp_path)]
    assert list(calls[2][2]["state_dict"]) == ["a"]
    assert len(calls) == 3


# ---------------------------------------------------------------------------------- models that convert what they load


class Pair(nn.Module):
    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 1)


class Renamed(Pair):
    """Was called `one` and `two` in an earlier version."""

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        state_dict = {
            name.replace("one.", "first.").replace("two.", "second."): value for name, value in state_dict.items()
        }
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class RenamedPart(Pair):
    """The same, by a hook of the module inside."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _rename(module: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in list(state_dict):
            state_dict[name.replace("one.", "first.").replace("two.", "second.")] = state_dict.pop(name)


def older_file(model: nn.Module, directory: Path, **more: torch.Tensor) -> None:
    names = {"first": "one", "second": "two"}
    state = {
        f"{names[part]}.{name}": value for part in names for name, value in getattr(model, part).named_parameters()
    }
    save_file({**state, **more}, directory / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("kind", [Renamed, RenamedPart])
def test_a_model_may_convert_what_it_loads(tmp_path: Path, kind: Any) -> None:
    model, other = Pair(seed=1), kind(seed=2)
    older_file(model, tmp_path)
    load_weights(other, tmp_path)
    assert equal(weights_of(model), weights_of(other))


@pytest.mark.parametrize("kind", [Renamed, RenamedPart])
def test_what_a_model_does_not_convert_is_still_an_error(tmp_path: Path, kind: Any) -> None:
    older_file(Pair(seed=1), tmp_path, three=torch.zeros(1))
    with pytest.raises(CheckpointError, match="do not fit the model"):
        load_weights(kind(seed=2), tmp_path)


def test_a_model_may_load_other_shapes(tmp_path: Path) -> None:
    class Grows(Pair):
        def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
            state_dict = {**state_dict, "first.bias": torch.cat([state_dict["first.bias"], torch.zeros(1)])[-3:]}
            return super().load_state_dict(state_dict, strict=strict, assign=assign)

    save_file({**Pair(seed=1).state_dict(), "first.bias": torch.ones(2)}, tmp_path / "model.safetensors")
    model = Grows(seed=2)
    load_weights(model, tmp_path)
    assert model.first.bias.tolist() == [1.0, 1.0, 0.0]


def test_a_model_may_separate_what_was_tied(tmp_path: Path) -> None:
    class Separate(Tied):
        def __init__(self) -> None:
            super().__init__(seed=2, tie=False)

        def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
            return super().load_state_dict(state_dict, strict=strict, assign=assign)

    tied, separate = Tied(seed=1), Separate()
    save_model(tied, tmp_path)
    load_weights(separate, tmp_path)
    assert equal(weights_of(tied), weights_of(separate))
