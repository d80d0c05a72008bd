"""Models with PEFT's adapters: the same run and the same files as with transformers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import adapters
from tests.support.apis import load_library
from tests.support.parity import check_parity, run_both, run_one

pytest.importorskip("transformers", reason="nothing to compare with")
pytest.importorskip("peft", reason="the dev extra has it")
load_library("transformers")

EVALUATED = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2}


def fit(api: Any, kind: str, **arguments: Any) -> Any:
    build, rows = adapters.MODELS[kind]
    own = api.ours(isolate_rng=False)
    trainer = api.trainer(build(), api.args(**arguments, **own), train_dataset=rows(), eval_dataset=rows()[:8])
    api.train(trainer)
    return trainer


@pytest.mark.parametrize("kind", list(adapters.MODELS))
def test_the_same_run(kind: str) -> None:
    _, ours = check_parity(lambda api: fit(api, kind, **EVALUATED))
    assert len(ours.logged("loss")) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"bf16": True},
        {"weight_decay": 0.1},
        {"neftune_noise_alpha": 5.0},
    ],
    ids=str,
)
def test_the_same_run_with(arguments: dict[str, Any]) -> None:
    check_parity(lambda api: fit(api, "causal", **EVALUATED, **arguments))


@pytest.mark.parametrize("kind", ["classifier", "modules_to_save", "prompt", "two adapters"])
def test_the_same_files(kind: str) -> None:
    def script(api):
        layout = api.ours(checkpoint_layout="transformers")
        trainer = fit(api, kind, max_steps=2, save_strategy="steps", save_steps=2, **layout)
        trainer.save_model(str(api.output_dir / "saved"))

    theirs, ours = run_both(script)
    assert set(theirs.files) <= set(ours.files)
    weights = [[name for name in each.files if name.endswith((".safetensors", ".bin"))] for each in (theirs, ours)]
    adapters = [[name for name in names if "adapter" in name] for names in weights]
    assert adapters[0] == adapters[1]
    assert not any(name.endswith(("/model.safetensors", "pytorch_model.bin")) for name in weights[1])


def test_several_adapters_resume_here() -> None:
    """transformers freezes all but one when it reads them back, and the optimizer no longer fits."""

    def script(api):
        saving = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
        whole = fit(api, "two adapters", **saving)
        build, rows = adapters.MODELS["two adapters"]
        again = api.trainer(build(), api.args(**saving, **api.ours(isolate_rng=False)), train_dataset=rows())
        again.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-2"))
        return [[entry["loss"] for entry in each.state.log_history if "loss" in entry] for each in (whole, again)]

    whole, again = run_one(script, "ostinato").result
    assert whole == again
    with pytest.raises(ValueError, match="size of optimizer's group"):
        run_one(script, "transformers")
