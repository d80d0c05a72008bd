"""Helpers of transformers' trainer that the package offers at its top: the same results for the same calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.apis import Api
from tests.support.parity import run_both

pytest.importorskip("transformers")

HOMES = ("trainer_pt_utils", "trainer_utils", "data.data_collator")
T = torch.tensor


def find(api: Api, name: str) -> Any:
    """Return a name of either library; transformers has these in modules of its own."""
    if api.is_ours:
        return getattr(api, name)
    homes = [import_module(f"transformers.{home}") for home in HOMES]
    return next(getattr(home, name) for home in homes if name in vars(home))


def describe(value: Any) -> Any:
    """Return a value with its types, so that a list is no tuple and an array no tensor."""
    if isinstance(value, dict):
        return {name: describe(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(describe, value)]
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return [type(value).__name__, str(value.dtype), value.tolist()]
    return [type(value).__name__, value]


def check(script: Callable[[Callable[[str], Any]], Any]) -> Any:
    """Both libraries return the same; `script` is given a function that finds a name."""
    theirs, ours = run_both(lambda api: describe(script(partial(find, api))))
    assert ours.result == theirs.result
    return ours.result


def test_nested_data() -> None:
    def script(name):
        concat, numpify, detach = name("nested_concat"), name("nested_numpify"), name("nested_detach")
        return [
            concat(T([[1, 2]]), T([[3]])),
            concat(T(1), T(2)),
            concat({"a": [T([1.0])], "b": np.array([[1]])}, {"a": [T([2.0])], "b": np.array([[1, 2]])}, 0),
            concat(torch.zeros(1, 2, 2), torch.ones(2, 3, 2)),
            numpify({"a": [T([1.0]), (T(1),)], "b": T([1.5], dtype=torch.bfloat16)}),
            detach({"a": [T([1.0], requires_grad=True), "text", None]}),
            name("nested_truncate")({"a": [T([1, 2, 3])], "b": np.arange(4)}, 2),
            name("nested_new_like")([np.zeros((2, 3)), np.zeros((1, 2), dtype=np.int64)], 3),
            name("nested_new_like")(np.zeros((2, 3)), 1, 0),  # in a container, transformers forgets the index
            [name("find_batch_size")(one) for one in ([{"a": T([1, 2])}], 3, T(3), {"a": "x", "b": np.arange(3)}, [])],
            name("denumpify_detensorize")(
                {"a": np.float32(1), "b": T(2.0), "c": [np.int64(1), (T([1]),)], "d": "x", "e": T([1, 2]), "f": None}
            ),
        ]

    check(script)


@pytest.mark.parametrize("joins", [True, False])
def test_batches_of_an_evaluation_loop(joins: bool) -> None:
    def script(name):
        container = name("EvalLoopContainer")(joins, padding_index=7)
        nothing = container.get_arrays()
        container.add(T([[1, 2]]))
        container.to_cpu_and_numpy()
        container.add(T([[3]]))
        container.add(T([[4, 5, 6]]))
        return nothing, container.get_arrays(), container.tensors

    check(script)


def test_rows_of_processes() -> None:
    class Rows(torch.utils.data.IterableDataset):
        def __init__(self, amount):
            self.amount, self.generator = amount, torch.Generator()

        def __len__(self):
            return self.amount

        def __iter__(self):
            return iter((torch.randperm(100, generator=self.generator)[: self.amount]).tolist())

    def script(name):
        found = []
        for amount in (0, 1, 5, 8, 12, 20):
            for index in range(3):
                for drops in (False, True):
                    plain = name("ShardSampler")(range(amount), 2, drops, 3, index)
                    stream = name("IterableDatasetShard")(Rows(amount), 2, drops, 3, index, seed=4)
                    stream.set_epoch(amount)
                    found.append([list(plain), len(plain), list(stream), len(stream), stream.num_examples])
        return found

    assert any(rows for rows, *_ in (row[1:] for row in check(script)[1:]))


def test_rows_of_similar_length_of_processes() -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    rows = [{"input_ids": [0] * length} for length in lengths]

    def script(name):
        found = []
        for given in ({"lengths": lengths}, {"dataset": rows}):
            for rank in (0, 1):
                for drops in (False, True):
                    sampler = name("DistributedLengthGroupedSampler")(
                        2, num_replicas=2, rank=rank, seed=3, drop_last=drops, **given
                    )
                    first = list(sampler)
                    sampler.set_epoch(1)
                    found.append([first, list(sampler), len(sampler), sampler.total_size])
        return found

    check(script)


def test_smaller_batches_until_memory_suffices() -> None:
    def script(name):
        wrap, tried = name("find_executable_batch_size"), []

        def fit(batch_size, most, error=None, *, key="k"):
            tried.append(batch_size)
            if batch_size > most:
                raise error or RuntimeError("CUDA out of memory.")
            return batch_size, key

        def fail(*arguments):
            try:
                return wrap(fit, starting_batch_size=3, auto_find_batch_size=True)(*arguments)
            except Exception as error:
                return type(error).__name__

        return [
            wrap(starting_batch_size=10, auto_find_batch_size=True)(fit)(6, key="x"),
            wrap(fit, starting_batch_size=3)(most=5),
            fail(0),
            fail(0, RuntimeError("DefaultCPUAllocator: can't allocate memory")),
            fail(0, RuntimeError("another")),
            fail(0, ValueError("CUDA out of memory.")),
            tried,
        ]

    check(script)


def test_numbers_about_functions_processes_and_time() -> None:
    def function(first, second, *, third=1, **rest): ...

    def script(name):
        count, metrics = name("number_of_arguments"), name("speed_metrics")("eval", 0.0, 10, 5, 3)
        return [
            [count(one) for one in (function, partial(function, 1), partial(function, third=2), print)],
            [name("is_main_process")(rank) for rank in (-1, 0, 1)],
            name("total_processes_number")(-1),
            list(metrics),
            metrics["eval_samples_per_second"],
            list(name("speed_metrics")("x", 0.0)),
            name("metrics_format")({"train_runtime": 3725.4567, "total_flos": 1e13, "loss": 0.123456}),
        ]

    check(script)


def test_a_stage_is_measured_by_the_name_of_the_method() -> None:
    def script(name):
        tracker = name("TrainerMemoryTracker")()

        class Measured:
            def __init__(self):
                tracker.start()
                tracker.stop_and_update_metrics()

            def evaluate(self):
                metrics = {}
                tracker.start()
                tracker.stop_and_update_metrics(metrics)
                return sorted(metrics)

        skipped = name("TrainerMemoryTracker")(skip_memory_metrics=True)
        skipped.start()
        skipped.stop_and_update_metrics(metrics := {})
        return Measured().evaluate(), metrics, skipped.skip_memory_metrics

    check(script)


def test_default_collators_by_back_end() -> None:
    rows = [{"x": [1, 2], "label": 0, "name": "a"}, {"x": [3, 4], "label": 1, "name": "b"}]
    check(lambda name: [name(f"{kind}_default_data_collator")(rows) for kind in ("torch", "numpy")])


def test_gathering_in_one_process(ours: Api) -> None:
    tree = {"a": [T([1])]}
    assert ours.nested_gather(tree, ours.ParallelMode.NOT_DISTRIBUTED) is tree
    assert ours.nested_gather(None, ours.ParallelMode.NOT_DISTRIBUTED) is None


def test_trees_of_different_structure_are_refused(ours: Api) -> None:
    with pytest.raises(TypeError, match="list and tuple"):
        ours.nested_concat([T([1])], (T([1]),))
