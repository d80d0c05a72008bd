"""Models that are divided among processes (FSDP2), against one process with the same global batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, load

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("sharded_worker.py")
HYBRID = {"parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 2}}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "averaged": {"ema": True, "load_best_model_at_end": True, "metric_for_best_model": "loss"},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {"shard": "full"},
    "accumulated": {"fsdp": "full_shard auto_wrap", "fsdp_config": {"transformer_layer_cls_to_wrap": "Layer"}},
    "averaged": {"fsdp": True, "fsdp_config": {"min_num_params": 250, "reshard_after_forward": False}},
}


def run(out: Path, processes: int, scenarios: dict[str, Any]) -> dict[str, Any]:
    """What the first process reports of every run."""
    launch(WORKER, out, json.dumps(scenarios), processes=processes)
    return {name: json.loads((out / f"{name}.json").read_text()) for name in scenarios}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return run(folder / "one", 1, VARIANTS)


@pytest.fixture(scope="module")
def together(folder: Path) -> dict[str, Any]:
    return run(folder / "two", 2, {name: {**VARIANTS[name], **request} for name, request in REQUESTS.items()})


@pytest.fixture(scope="module")
def hybrid(folder: Path) -> dict[str, Any]:
    return run(folder / "four", 4, {"plain": HYBRID})


def follow(sharded: dict[str, Any], whole: dict[str, Any]) -> None:
    assert len(whole["losses"]) == 12
    for name in ("losses", "norms", "eval"):
        assert sharded[name] == pytest.approx(whole[name], rel=1e-6, abs=1e-6), name
    assert sharded["predicted"] == whole["predicted"] == 11
    assert sharded["names"] == whole["names"], "the files are those of a model that is not divided"
    assert sharded["divided"] == sharded["parameters"] > whole["divided"] == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_two_processes_follow_one(name: str, alone: dict[str, Any], together: dict[str, Any]) -> None:
    follow(together[name], alone[name])
    assert together[name]["best"] == alone[name]["best"]


def test_averages_are_what_a_sharded_model_is_evaluated_with(together: dict[str, Any]) -> None:
    assert together["averaged"]["losses"] == pytest.approx(together["plain"]["losses"], rel=1e-6)
    assert together["averaged"]["eval"] != pytest.approx(together["plain"]["eval"], rel=1e-4)


def test_copies_of_a_sharded_model_follow_one_process(alone: dict[str, Any], hybrid: dict[str, Any]) -> None:
    follow(hybrid["plain"], alone["plain"])


def test_every_process_writes_its_part(together: dict[str, Any], folder: Path) -> None:
    files = together["plain"]["files"]
    assert "model.safetensors" in files, "which any program can load"
    assert {f"optimizer.shard-{number}-of-2.safetensors" for number in (1, 2)} < set(files)
    assert "optimizer.safetensors" not in files
    sizes = [
        (folder / "two/plain/checkpoint-12" / f"optimizer.shard-{n}-of-2.safetensors").stat().st_size for n in (1, 2)
    ]
    assert max(sizes) < 1.5 * min(sizes)


def test_resuming_is_exact(folder: Path, together: dict[str, Any]) -> None:
    scenarios = {
        name: {**VARIANTS[name], **REQUESTS[name], "from": str(folder / "two" / name / "checkpoint-6")}
        for name in VARIANTS
    }
    resumed = run(folder / "resumed", 2, scenarios)
    for name, report in resumed.items():
        assert report["losses"] == together[name]["losses"]
        assert report["weights"] == together[name]["weights"], name


@pytest.mark.parametrize(
    ("source", "processes", "how"),
    [("two", 1, {}), ("one", 2, {"shard": "full"}), ("four", 1, {}), ("four", 2, {}), ("two", 4, HYBRID)],
    ids=["2 to 1", "1 to 2", "2x2 to 1", "2x2 to 2 replicas", "2 to 2x2"],
)
def test_a_checkpoint_loads_anywhere(
    source: str,
    processes: int,
    how: dict[str, Any],
    folder: Path,
    alone: dict[str, Any],
    together: dict[str, Any],
    hybrid: dict[str, Any],
) -> None:
    options = {**how, "from": str(folder / source / "plain" / "checkpoint-6")}
    name = f"{source}-{processes}"
    report = run(folder / name, processes, {"plain": options})["plain"]
    assert report["losses"] == pytest.approx(alone["plain"]["losses"], rel=1e-6)
    assert report["eval"] == pytest.approx(alone["plain"]["eval"], rel=1e-6)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # as intended
@pytest.mark.parametrize("source", ["two", "four"])
def test_torch_reads_a_checkpoint(source: str, folder: Path, alone: Any, together: Any, hybrid: Any) -> None:
    """Its parts have the form of torch's distributed checkpoints: each with its place in the whole."""
    whole, parts = folder / "one/plain/checkpoint-6", folder / source / "plain/checkpoint-6"
    expected = {**load_file(whole / "model.safetensors"), **load_file(whole / "optimizer.safetensors")}
    state = {name: torch.full_like(tensor, torch.nan) for name, tensor in expected.items()}
    load(state, storage_reader=HuggingFaceStorageReader(str(parts)), no_dist=True)
    torch.testing.assert_close(state, expected, rtol=1e-4, atol=1e-6)
    assert len(expected) > 20


def test_an_adapter_of_a_sharded_model(folder: Path) -> None:
    pytest.importorskip("peft")
    whole = run(folder / "adapter-1", 1, {"adapter": {}})["adapter"]
    sharded = run(folder / "adapter-2", 2, {"adapter": {"shard": "full"}})["adapter"]
    assert sharded["losses"] == pytest.approx(whole["losses"], rel=1e-6)
    assert sharded["weights"].keys() == whole["weights"].keys()
    options = {"shard": "full", "from": str(folder / "adapter-2/adapter/checkpoint-3")}
    assert run(folder / "adapter-resumed", 2, {"adapter": options})["adapter"]["weights"] == sharded["weights"]


def test_a_sharded_model_generates_in_step(folder: Path) -> None:
    """Processes whose texts are complete go on until the last one is done: it needs their weights."""
    pytest.importorskip("transformers")
    whole = run(folder / "generate-1", 1, {"generate": {}})["generate"]
    assert run(folder / "generate-2", 2, {"generate": {"shard": "full"}})["generate"] == whole
    assert whole["before"] != whole["after"]
    assert len(whole["in training"]) == 2


def test_adafactor_of_a_weight_of_one_row(folder: Path) -> None:
    options = {"optim": "adafactor"}
    whole = run(folder / "regression-1", 1, {"regression": options})["regression"]["losses"]
    sharded = run(folder / "regression-2", 2, {"regression": {**options, "shard": "full"}})["regression"]["losses"]
    assert len(whole) == 6
    assert sharded == pytest.approx(whole, rel=1e-6)
