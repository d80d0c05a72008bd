"""`torch_compile=True`, and models that came compiled: compiled where it counts, invisible everywhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from safetensors.torch import load_file

from ostinato.core.compiled_model import get_uncompiled
from ostinato.core.errors import ConfigError
from ostinato.strategies import compile
from tests.support import tiny
from tests.support.apis import Api
from tests.support.long_tests import long_only
from tests.support.records import assert_same

SCHEDULE = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler called `counting` was asked to compile; it leaves everything as it is."""
    from torch._dynamo.backends import registry

    made: list[Any] = []

    def counting(graph: torch.fx.GraphModule, example: Any) -> Any:
        made.append(graph)
        return graph.forward

    monkeypatch.setitem(registry._COMPILER_FNS, "counting", counting)
    monkeypatch.setitem(registry._BACKENDS, "counting", None)
    return made


def regression(ours: Api, model: Any = None, *, prefix: str = "", **arguments: Any) -> Any:
    arguments = {**SCHEDULE, "output_dir": str(ours.output_dir / prefix), **arguments}
    rows = [{**row, "note": 1} for row in tiny.regression_rows()]
    model = tiny.regression(dropout=0.3) if model is None else model
    return ours.trainer(model, ours.args(**arguments), train_dataset=rows, eval_dataset=rows[:8])


def bert() -> Any:
    """Of one layer: every layer takes a second to compile."""
    model = tiny.bert()
    del model.bert.encoder.layer[1:]
    model.config.num_hidden_layers = 1
    return model


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


# ------------------------------------------------------------------------------------------------------ torch_compile


def test_the_compiled_model_is_called_in_training_and_evaluation(ours: Api) -> None:
    seen = []

    class Watching(ours.Trainer):
        def compute_loss(self, model, inputs, **kwargs):
            seen.append((model, model.training))
            return super().compute_loss(model, inputs, **kwargs)

    model = tiny.regression()
    args = ours.args(**SCHEDULE, torch_compile=True, torch_compile_backend="eager")
    trainer = ours.trainer(
        model, args, cls=Watching, train_dataset=tiny.regression_rows(), eval_dataset=tiny.regression_rows(8)
    )
    trainer.train()
    trainer.predict(tiny.regression_rows(8))
    assert trainer.model is model
    assert get_uncompiled(trainer.model_wrapped) is model is not trainer.model_wrapped
    assert {id(called) for called, _ in seen} == {id(trainer.model_wrapped)}
    assert {training for _, training in seen} == {True, False}
    assert trainer.accelerator.unwrap_model(trainer.model_wrapped) is model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bf16": True},
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"rehearse": True},
    ],
    ids=str,
)
def test_numbers_are_those_of_the_same_run_uncompiled(ours: Api, graphs: list[Any], settings: dict[str, Any]) -> None:
    plain = regression(ours, prefix="plain", **settings)
    plain.train()
    assert not graphs
    fast = regression(ours, prefix="fast", torch_compile_backend="counting", **settings)
    fast.train()
    assert graphs
    assert_same(weights_of(plain), weights_of(fast))
    losses = [[e.get("loss", e.get("eval_loss")) for e in each.state.log_history] for each in (plain, fast)]
    assert losses[0] == losses[1]


def test_nothing_is_compiled_twice(ours: Api, graphs: list[Any]) -> None:
    trainer = regression(ours, torch_compile_backend="counting", bf16=True)
    trainer.train()
    compiled = len(graphs)
    for _ in range(3):
        trainer.evaluate()
        trainer.predict(trainer.eval_dataset)
    trainer.train()
    assert len(graphs) == compiled


def test_looking_compiles_nothing(ours: Api, graphs: list[Any]) -> None:
    trainer = regression(ours, torch_compile_backend="counting")
    trainer.explain()
    assert "counting" in str(trainer.plan())
    assert not graphs


@pytest.mark.parametrize("build", [tiny.regression, tiny.tied, bert], ids=["regression", "tied", "bert"])
def test_names_in_checkpoints_are_the_models_own(ours: Api, build: Any) -> None:
    if build is bert:
        pytest.importorskip("transformers")
    rows = tiny.regression_rows() if build is tiny.regression else tiny.classification_rows()
    if build is tiny.tied:
        rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
    args = ours.args(max_steps=2, save_strategy="steps", save_steps=2, torch_compile_backend="eager")
    trainer = ours.trainer(build(), args, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(ours.output_dir / "saved"))
    for directory in ("checkpoint-2", "saved"):
        names = load_file(ours.output_dir / directory / "model.safetensors").keys()
        assert names <= build().state_dict().keys()
    if build is bert:
        again = type(build()).from_pretrained(ours.output_dir / "saved")
        assert_same(dict(again.state_dict()), weights_of(trainer))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_resumed_run_is_the_same(ours: Api, backend: str) -> None:
    whole = regression(ours, torch_compile_backend=backend)
    whole.train()
    wanted = weights_of(whole)
    shutil.rmtree(ours.output_dir / "checkpoint-4")
    resumed = regression(ours, torch_compile_backend=backend)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 4
    assert_same(weights_of(resumed), wanted)


def test_resuming_can_be_verified(ours: Api) -> None:
    report = regression(ours, torch_compile_backend="eager").verify_resume(steps=1)
    assert report.equal


def test_model_init_compiles_each_model(ours: Api) -> None:
    args = ours.args(max_steps=1, torch_compile_backend="eager")
    trainer = ours.trainer(args=args, model_init=lambda: tiny.regression(), train_dataset=tiny.regression_rows())
    for _ in range(2):
        trainer.train()
        assert get_uncompiled(trainer.model_wrapped) is trainer.model


def test_switching_it_off_again_is_honoured(ours: Api) -> None:
    trainer = regression(ours, torch_compile_backend="eager")
    trainer.train()
    trainer.args.torch_compile, trainer.args.torch_compile_backend = False, None
    trainer.train()
    assert trainer.model_wrapped is trainer.model


def test_an_unknown_backend_is_refused_before_the_first_step(ours: Api) -> None:
    trainer = regression(ours, torch_compile_backend="inducter")
    with pytest.raises(ConfigError, match=r"torch_compile_backend='inducter'(.|\n)*did you mean 'inductor'"):
        trainer.train()
    assert trainer.state.global_step == 0
    with pytest.raises(RuntimeError):  # which is what torch raises
        trainer.evaluate()


def test_an_unknown_mode_is_refused_before_the_first_step(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile.shutil, "which", lambda name: f"/usr/bin/{name}")
    trainer = regression(ours, torch_compile_mode="faster")
    with pytest.raises(ConfigError, match=r"torch_compile_mode='faster'(.|\n)*max-autotune"):
        trainer.train()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems bring their compiler")
def test_without_a_compiler_the_first_step_is_not_reached(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"no-such-compiler(.|\n)*aot_eager"):
        regression(ours, torch_compile=True).train()


# ------------------------------------------------------------------------------------------- compiled by somebody else


def wrapped(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def in_place(model: torch.nn.Module) -> Any:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("compile_model", [wrapped, in_place])
@pytest.mark.parametrize("asked", [{}, {"torch_compile_backend": "counting"}], ids=["alone", "and torch_compile"])
def test_a_compiled_model_trains_as_it_is(ours: Api, graphs: list[Any], compile_model: Any, asked: Any) -> None:
    plain = regression(ours, prefix="plain")
    plain.train()
    given = compile_model(tiny.regression(dropout=0.3))
    trainer = regression(ours, given, prefix="given", load_best_model_at_end=True, **asked)
    assert trainer.label_names == ["labels"]
    assert trainer.model_columns().left_out == ["note"]
    trainer.train()
    assert not graphs, "it is not compiled again"
    assert trainer.model_wrapped is given
    assert trainer.state.log_history[0]["loss"] == plain.state.log_history[0]["loss"]
    names = load_file(ours.output_dir / "given" / "checkpoint-2" / "model.safetensors").keys()
    assert names == tiny.regression().state_dict().keys()
    resumed = regression(ours, compile_model(tiny.regression(dropout=0.3)), prefix="given", max_steps=6)
    resumed.train(resume_from_checkpoint=True, resume_mode="extend")
    assert resumed.state.global_step == 6


def test_a_compiled_model_of_transformers(ours: Api) -> None:
    pytest.importorskip("transformers")
    rows = tiny.classification_rows()
    args = ours.args(max_steps=2, eval_strategy="steps", eval_steps=1, load_best_model_at_end=True)
    trainer = ours.trainer(torch.compile(bert(), backend="eager"), args, train_dataset=rows, eval_dataset=rows[:8])
    trainer.train()
    trainer.save_model(str(ours.output_dir / "saved"))
    again = type(bert()).from_pretrained(ours.output_dir / "saved")
    assert_same(dict(again.state_dict()), weights_of(trainer))


def test_a_model_compiled_after_the_trainer_was_made(ours: Api) -> None:
    trainer = regression(ours, load_best_model_at_end=True)
    trainer.model = wrapped(trainer.model)
    trainer.train()
    names = load_file(ours.output_dir / "checkpoint-2" / "model.safetensors").keys()
    assert names == tiny.regression().state_dict().keys()


# ------------------------------------------------------------------------------------------------------------ inductor

SCRIPT = """
    import os, shutil, sys
    import torch
    import torch._inductor.compile_fx  # once for both processes: it takes as long as a run
    from ostinato import Trainer, TrainingArguments, set_seed
    from safetensors.torch import save_file

    torch.set_num_threads(1)

    class Small(torch.nn.Module):  # every kernel is a call of the C++ compiler
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.dropout = torch.nn.Dropout(0.3)

        def forward(self, x, labels):
            return {"loss": ((self.linear(self.dropout(x)).squeeze(-1) - labels) ** 2).mean()}

    def run(directory, weights, resume):
        args = TrainingArguments(
            directory, torch_compile=True, max_steps=4, save_steps=2, per_device_train_batch_size=4, use_cpu=True,
            disable_tqdm=True, learning_rate=1e-2,
        )
        set_seed(0)
        rows = [{"x": [float(n % 3), float(n % 5), 1.0, -1.0], "labels": float(n)} for n in range(24)]
        trainer = Trainer(Small(), args, train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume)
        save_file(trainer.model.state_dict(), weights)

    directory, whole, resumed = sys.argv[1:]
    for weights, resume in ((whole, False), (resumed, True)):
        process = os.fork()
        if process == 0:
            run(directory, weights, resume)
            break
        if os.waitpid(process, 0)[1] != 0:
            sys.exit(f"the process of {weights} failed")
        shutil.rmtree(f"{directory}/checkpoint-4")
"""


@long_only  # of the compiler's time; with another backend it is in `test_a_resumed_run_is_the_same`
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_resumes_bit_for_bit_in_another_process(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # a pool's processes would all import torch
    words = [str(tmp_path / name) for name in ("run", "whole", "resumed")]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert_same(load_file(tmp_path / "whole"), load_file(tmp_path / "resumed"))
