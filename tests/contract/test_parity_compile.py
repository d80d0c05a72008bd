"""`torch_compile`: the same run as with transformers, whoever compiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch._dynamo  # sets an environment variable when first loaded
from safetensors.torch import load_file

from tests.support import tiny
from tests.support.parity import check_parity, run_one

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_run(backend: str) -> None:
    def script(api):
        trainer = api.trainer(
            tiny.regression(),
            api.args(
                max_steps=4, eval_strategy="steps", eval_steps=2, torch_compile=True, torch_compile_backend=backend
            ),
            train_dataset=tiny.regression_rows(),
            eval_dataset=tiny.regression_rows(8, seed=2),
        )
        torch._dynamo.reset()
        api.train(trainer)
        return (
            type(trainer.model).__name__,
            type(trainer.model_wrapped).__name__,
            trainer.predict(tiny.regression_rows(8)).predictions,
        )

    _, ours = check_parity(script)
    assert ours.result[:2] == ("Regression", "OptimizedModule")


def test_names_of_weights_and_files() -> None:
    def script(api):
        model = tiny.bert()
        del model.bert.encoder.layer[1:]  # every layer takes a second to compile
        arguments: dict[str, Any] = dict(
            max_steps=2, save_strategy="steps", save_steps=2, torch_compile_backend="eager"
        )
        api.fit(model, tiny.classification_rows(), **arguments, **api.ours(checkpoint_layout="transformers"))
        return sorted(load_file(api.output_dir / "checkpoint-2" / "model.safetensors"))

    assert run_one(script, "transformers").result == run_one(script, "ostinato").result
