"""A language model in several layouts over processes, against one process with the same global batch.

`make long`, or OSTINATO_LAYOUTS=NAMES, runs them with every model for 50 steps.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ostinato import CheckpointError
from ostinato.checkpoint.consolidation import consolidate
from ostinato.checkpoint.tensors import read_tree
from ostinato.cli import main
from tests.support import launcher
from tests.support.long_tests import LONG

WORKER = Path(__file__).with_name("layout_worker.py")
TENSOR: dict[str, Any] = {"tensor_size": 2, "parallelism_config": {"tp_size": 2}}
RECOMPUTED: dict[str, Any] = {"fsdp": True, "fsdp_config": {"activation_checkpointing": True}}
MODELS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied": {"model": "tied", "gradient_accumulation_steps": 2},
    "adapter": {"model": "adapter"},
    "watched": {"watched": True, "max_steps": 4, "eval_steps": 2, "save_strategy": "no"},
}

pytest.importorskip("transformers")
pytest.importorskip("peft")


def run(out: Path, processes: int, scenarios: dict[str, Any], seconds: float = 280) -> dict[str, Any]:
    """What the first process reports of every run."""
    done = launcher.run(WORKER, out, json.dumps(scenarios), processes=processes, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((out / f"{name}.json").read_text()) for name in scenarios}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return run(folder / "one", 1, MODELS)


@pytest.fixture(scope="module")
def tensor(folder: Path) -> dict[str, Any]:
    given = {
        "given-tp": {"divided": "tp", "tensor_size": 2},
        "given-fsdp": {"divided": "fsdp"},
        "given-script": {"divided": "script"},
        "meta": {**MODELS["tied"], "divided": "meta", **RECOMPUTED},
        "meta-tp": {**MODELS["tied"], "divided": "meta", **TENSOR},
        "offloaded": {"fsdp": "full_shard offload"},
        "watched-fsdp": {**MODELS["watched"], "shard": "full"},
    }
    return run(folder / "two", 2, {**{name: {**model, **TENSOR} for name, model in MODELS.items()}, **given})


@pytest.fixture(scope="module")
def mixed(folder: Path, alone: dict[str, Any], tensor: dict[str, Any]) -> dict[str, Any]:
    runs = {name: {**model, **TENSOR} for name, model in MODELS.items() if name != "watched"}
    resumed = {f"{name} from {source}": {**runs[name], "from": find(folder, source, name)} for source, name in TO_FOUR}
    return run(folder / "four", 4, {**runs, **resumed})


TO_FOUR = [("four", "untied"), ("two", "untied"), ("one", "tied")]


def find(folder: Path, source: str, name: str) -> str:
    return str(folder / source / name / "checkpoint-5")


def follow(divided: dict[str, Any], whole: dict[str, Any]) -> None:
    for name in ("losses", "norms", "eval"):
        assert divided[name] == pytest.approx(whole[name], rel=1e-6, abs=1e-6), name
    assert divided["predicted"] == whole["predicted"] == 11
    assert divided["names"] == whole["names"], "the files are those of a model that is not divided"
    assert divided["divided"] > whole["divided"] == 0


@pytest.mark.parametrize("model", MODELS)
def test_layers_divided_over_two_processes_follow_one(
    model: str, alone: dict[str, Any], tensor: dict[str, Any]
) -> None:
    follow(tensor[model], alone[model])


@pytest.mark.parametrize("model", ["untied", "tied", "adapter"])
def test_divided_layers_with_gathered_parts_follow_one(
    model: str, alone: dict[str, Any], mixed: dict[str, Any]
) -> None:
    follow(mixed[model], alone[model])


@pytest.mark.parametrize("by", ["tp", "fsdp", "script"])
def test_a_model_that_was_divided_before_trains(by: str, alone: dict[str, Any], tensor: dict[str, Any]) -> None:
    follow(tensor[f"given-{by}"], alone["untied"])


@pytest.mark.parametrize("name", ["meta", "meta-tp"])
def test_weights_come_from_the_first_process(name: str, alone: dict[str, Any], tensor: dict[str, Any]) -> None:
    """The others create the model without any; embeddings are tied, and some buffers are in no checkpoint."""
    follow(tensor[name], alone["tied"])


@pytest.mark.parametrize("name", ["watched", "watched-fsdp"])
def test_callbacks_see_whole_gradients(name: str, alone: dict[str, Any], tensor: dict[str, Any]) -> None:
    follow(tensor[name], alone["watched"])
    for seen, expected in zip(tensor[name]["by layer"], alone["watched"]["by layer"], strict=True):
        assert seen == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert "grad_norm/model.layers.1" in alone["watched"]["by layer"][0]


def test_parts_in_the_memory_of_the_host(alone: dict[str, Any], tensor: dict[str, Any]) -> None:
    follow(tensor["offloaded"], alone["untied"])


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def test_resuming_in_the_same_layout_is_exact(mixed: dict[str, Any]) -> None:
    resumed = mixed["untied from four"]
    assert resumed["losses"] == mixed["untied"]["losses"]
    assert resumed["weights"] == mixed["untied"]["weights"]


@pytest.mark.parametrize(("source", "name"), TO_FOUR[1:])
def test_other_layouts_resume_in_this_one(
    source: str, name: str, alone: dict[str, Any], mixed: dict[str, Any]
) -> None:
    follow(mixed[f"{name} from {source}"], alone[name])


def test_one_process_resumes_from_this_one(folder: Path, alone: dict[str, Any], mixed: dict[str, Any]) -> None:
    sources = {"untied": "four", "tied": "two"}
    runs = {name: {**MODELS[name], "from": find(folder, source, name)} for name, source in sources.items()}
    for name, resumed in run(folder / "back", 1, runs).items():
        assert resumed["losses"] == pytest.approx(alone[name]["losses"], rel=1e-6)


def test_parts_are_joined_to_plain_files(folder: Path, mixed: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    source, target = find(folder, "four", "untied"), tmp_path / "checkpoint-5"
    assert main(["verify", source]) == 0
    assert "written in parts by 4 processes" in capsys.readouterr().out
    assert main(["consolidate", source, str(target)]) == 0
    assert main(["verify", str(target)]) == 0
    plain, parts = read_tree(target, "optimizer"), read_tree(Path(source), "optimizer")
    state, expected = plain["state_dict"]["state"], parts["state_dict"]["state"]
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key]["exp_avg"], expected[key]["exp_avg"]) for key in state)
    ours, theirs = (set(os.listdir(one)) - {"rng-1.json"} for one in (target, find(folder, "one", "untied")))
    assert {name for name in ours if not name.startswith("rng-")} == {n for n in theirs if not n.startswith("rng-")}
    names = load_file(target / "optimizer.safetensors").keys()
    assert names == load_file(Path(find(folder, "one", "untied")) / "optimizer.safetensors").keys()


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_damaged_part_is_named(
    folder: Path, mixed: dict[str, Any], tmp_path: Path, damage: str, capsys: Any
) -> None:
    copy = tmp_path / "checkpoint-5"
    shutil.copytree(find(folder, "four", "untied"), copy)
    part = copy / "optimizer.shard-3-of-4.safetensors"
    if damage == "missing":
        part.unlink()
    else:
        content = bytearray(part.read_bytes())
        content[-1] ^= 1
        part.write_bytes(content)
    assert main(["verify", str(copy)]) == 1
    assert f"{part.name} is {damage}" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match=part.name):
        consolidate(copy, tmp_path / "other")


# ---- every layout, every model -------------------------------------------------------------------------------------

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp-2": (2, {}),
    "fsdp-2": (2, {"shard": "full"}),
    "tp-2": (2, TENSOR),
    "ddp-4": (4, {}),
    "fsdp-4": (4, {"shard": "full"}),
    "hsdp-2x2": (4, {"parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 2}}),
    "fsdp-tp-2x2": (4, TENSOR),
    "copies-tp-2x2": (4, {"tensor_size": 2, "parallelism_config": {"tp_size": 2, "dp_replicate_size": 2}}),
}
FIFTY: dict[str, Any] = {"max_steps": 50, "eval_strategy": "no", "save_strategy": "no"}


CHOSEN = os.environ.get("OSTINATO_LAYOUTS", "all" if LONG else "").replace(",", " ").split()


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not CHOSEN, reason="takes minutes: make long; OSTINATO_LAYOUTS=NAMES runs some")
def test_layouts_follow_one_process_for_fifty_steps(folder: Path) -> None:
    runs = {
        f"{model}-{steps}": {"model": model, **({"gradient_accumulation_steps": steps} if steps > 1 else {}), **FIFTY}
        for model in ("untied", "tied", "adapter")
        for steps in (1, 4)
    }

    def fit(processes: int, options: dict[str, Any]) -> dict[str, Any]:
        """Return the runs whose batch of eight rows can be divided so."""
        rows = processes // options.get("tensor_size", 1)
        return {
            name: {**one, **options}
            for name, one in runs.items()
            if 8 // rows // one.get("gradient_accumulation_steps", 1)
        }

    whole = run(folder / "long", 1, runs, seconds=3600)
    for layout, (processes, options) in LAYOUTS.items():
        if CHOSEN != ["all"] and layout not in CHOSEN:
            continue
        divided = run(folder / f"long-{layout}", processes, fit(processes, options), seconds=3600)
        for name, one in divided.items():
            pairs = list(zip(one["losses"], whole[name]["losses"], strict=True))
            worst = max(abs(a - b) / b for a, b in pairs)
            print(f"{layout} {name}: {worst:.1e}", flush=True)
            assert len(pairs) == 50
            assert worst < 1e-6
