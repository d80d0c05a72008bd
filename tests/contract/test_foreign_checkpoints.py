"""No lock-in: a run goes on under the other library as if nothing had happened, in both directions."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostinato
from ostinato.checkpoint import weights
from ostinato.checkpoint.atomic import verify
from ostinato.checkpoint.transformers import read
from ostinato.checkpoint.transformers.convert import convert
from ostinato.checkpoint.transformers.detect import is_from_transformers
from ostinato.core.errors import CheckpointError
from tests.support import tiny
from tests.support.apis import Api, guest
from tests.support.records import assert_same

pytest.importorskip("transformers")


@dataclasses.dataclass(frozen=True)
class Case:
    """A run whose weights are the same under both libraries."""

    model: Any
    rows: Any
    arguments: dict[str, Any]
    steps: tuple[int, ...] = ()  # to go on from; all of them where they are cheap


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2}

BERT = (tiny.bert, partial(tiny.classification_rows, 22))  # 6 batches to the epoch
MLP = (partial(tiny.regression, dropout=0.3), partial(tiny.regression_rows, 20))  # 5
GPT2 = (tiny.gpt2, partial(tiny.language_rows, 24))

CASES = {
    "bert": Case(*BERT, {"warmup_steps": 3, "weight_decay": 0.1}, steps=(1, 4, 6, 7, 12)),
    "bert, evaluated": Case(*BERT, {"eval_strategy": "steps", "eval_steps": 2}, steps=(3, 4, 6, 8)),
    "mlp, accumulated": Case(*MLP, {"gradient_accumulation_steps": 2}),  # the fifth batch is an update of its own
    "gpt2, accumulated": Case(*GPT2, {"gradient_accumulation_steps": 2, "lr_scheduler_type": "cosine"}, steps=(2, 3)),
    "mlp, saved by epoch": Case(*MLP, {"save_strategy": "epoch"}),
    "mlp, adafactor, plateau": Case(
        *MLP,
        {
            "optim": "adafactor",
            "lr_scheduler_type": "reduce_lr_on_plateau",
            "eval_strategy": "steps",
            "eval_steps": 1,
            "metric_for_best_model": "loss",
        },
        steps=(3, 5),
    ),
    "mlp, bf16": Case(*MLP, {"bf16": True}, steps=(4,)),
    "mlp, sgd": Case(*MLP, {"optim": "sgd", "max_steps": 8}, steps=(1, 5, 7)),
}


def run(
    library: str,
    folder: Path,
    case: Case,
    checkpoint: Path | None = None,
    exports: bool = False,
    callbacks: Any = lambda api: [],
    **more: Any,
) -> Any:
    """Train from the beginning or from a checkpoint; the trainer. `exports`: ours also writes their files."""
    with guest(library):
        api = Api(library, folder)
        api.set_seed(42)
        arguments = dict(
            per_device_train_batch_size=4,
            num_train_epochs=2,
            save_strategy="steps",
            save_steps=1,
            **api.ours(isolate_rng=False, checkpoint_layout="transformers" if exports else "ostinato"),
        )
        args = api.args(**{**arguments, **case.arguments, **more})
        data = {"train_dataset": case.rows()}
        if args.eval_strategy != "no":
            data["eval_dataset"] = case.rows(seed=2)
        built = api.trainer(case.model(), args, callbacks=callbacks(api), **data)
        api.train(built, resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return built


def checkpoints(folder: Path, case: Case) -> list[Path]:
    """Those to go on from, by step."""
    found = {int(path.name.removeprefix("checkpoint-")): path for path in folder.glob("checkpoint-*")}
    return [found[step] for step in case.steps or sorted(found)]


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def same_weights(a: Any, b: Any) -> bool:
    return all(map(torch.equal, weights_of(a).values(), weights_of(b).values()))


def history_of(trainer: Any) -> list[dict[str, Any]]:
    """All logs but the last, which sums up; those that come from a file have sorted keys."""
    return [dict(sorted(entry.items())) for entry in trainer.state.log_history[:-1]]


def assert_same_end(whole: Any, resumed: Any) -> None:
    assert_same(weights_of(whole), weights_of(resumed), "weights")
    assert_same(history_of(whole), history_of(resumed), "log_history")
    for name in ("epoch", "global_step", "max_steps", "total_flos", "best_metric", "num_input_tokens_seen"):
        assert_same(getattr(whole.state, name), getattr(resumed.state, name), name)
    assert_same(_optimizer_state(whole), _optimizer_state(resumed), "optimizer")
    assert_same(whole.lr_scheduler.state_dict(), resumed.lr_scheduler.state_dict(), "scheduler")


def _optimizer_state(trainer: Any) -> dict[str, Any]:
    """Groups list their settings in whatever order they were made."""
    state = trainer.optimizer.state_dict()
    return {**state, "param_groups": [dict(sorted(group.items())) for group in state["param_groups"]]}


@pytest.fixture(scope="module")
def their_runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Uninterrupted runs of transformers, with a checkpoint after every step."""
    made: dict[str, tuple[Any, Path]] = {}

    def get(name: str) -> tuple[Any, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp("theirs")
            made[name] = run("transformers", folder, CASES[name]), folder
        return made[name]

    return get


# ------------------------------------------------------------------------------------------------ theirs, then ours


@pytest.mark.parametrize("name", CASES)
def test_our_run_goes_on_from_theirs(name: str, their_runs: Any, tmp_path: Path) -> None:
    """From every checkpoint, within epochs and between them: as if transformers had never stopped."""
    whole, folder = their_runs(name)
    saves = {"save_strategy": CASES[name].arguments.get("save_strategy", "no")}
    for checkpoint in checkpoints(folder, CASES[name]):
        assert_same_end(whole, run("ostinato", tmp_path, CASES[name], checkpoint, **saves))


def test_a_finished_run_is_finished(their_runs: Any, tmp_path: Path) -> None:
    """It ended within an epoch: transformers, resuming, takes a ninth step of eight."""
    whole, folder = their_runs("mlp, sgd")
    case, last = CASES["mlp, sgd"], folder / "checkpoint-8"
    assert_same_end(whole, run("ostinato", tmp_path, case, last, save_strategy="no"))
    assert run("transformers", tmp_path, case, last, save_strategy="no").state.global_step == 9


# A checkpoint from which transformers itself goes on otherwise than it would have, and the reason.
BETTER = {
    "an epoch's end": (Case(*BERT, {"eval_strategy": "epoch"}), 6),  # evaluates after it: skipped when resumed
    "a second pass": (Case(MLP[0], lambda: tiny.StreamDataset(tiny.regression_rows(10)), {"max_steps": 7}), 5),
}


@pytest.mark.parametrize("name", BETTER)
def test_where_transformers_itself_loses_its_place(name: str, tmp_path: Path) -> None:
    case, step = BETTER[name]
    whole = run("transformers", tmp_path / "whole", case)
    checkpoint = tmp_path / "whole" / f"checkpoint-{step}"
    assert_same_end(whole, run("ostinato", tmp_path / "ours", case, checkpoint, save_strategy="no"))
    theirs = run("transformers", tmp_path / "theirs", case, checkpoint, save_strategy="no")
    assert not same_weights(whole, theirs)


def test_adapters(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")

    def lora() -> Any:
        settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_dropout=0.1, target_modules=["query", "value"])
        return tiny.seeded(peft.get_peft_model, tiny.bert(), settings)

    case = Case(lora, BERT[1], {"max_steps": 6})
    whole = run("transformers", tmp_path / "theirs", case)
    convert(tmp_path / "theirs" / "checkpoint-4", tmp_path / "converted", to="ostinato")
    for checkpoint in (tmp_path / "theirs" / "checkpoint-4", tmp_path / "converted"):
        assert_same_end(whole, run("ostinato", tmp_path / "ours", case, checkpoint, save_strategy="no"))


def test_it_matters_what_is_restored(their_runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part decides the outcome, or the test above would say nothing."""
    whole, folder = their_runs("bert")

    def outcome() -> bool:
        resumed = run("ostinato", tmp_path, CASES["bert"], folder / "checkpoint-8", save_strategy="no")
        return same_weights(whole, resumed)

    assert outcome()
    for part in ("load_foreign_training_parts", "load_foreign_random_state", "load_foreign_weights"):
        with monkeypatch.context() as patched:
            patched.setattr(read, part, lambda *args, **kwargs: None)
            assert not outcome(), part
    with monkeypatch.context() as patched:
        patched.setattr(read, "_find_position", lambda *args: (1, 0))
        assert not outcome()


def test_the_loss_of_the_whole_run(their_runs: Any, tmp_path: Path) -> None:
    """Every step was logged, so train_loss is that of the uninterrupted run."""
    whole, folder = their_runs("bert")
    resumed = run("ostinato", tmp_path, CASES["bert"], folder / "checkpoint-8", save_strategy="no")
    ends = [trainer.state.log_history[-1]["train_loss"] for trainer in (whole, resumed)]
    assert ends[1] == pytest.approx(ends[0], rel=1e-12)


BEST = {"metric_for_best_model": "loss", "load_best_model_at_end": True, "save_steps": 2}


def test_callbacks_go_on(tmp_path: Path) -> None:
    """Early stopping counts on from where it was under transformers, and the best model is still known."""
    more = dict(BEST, learning_rate=0.3, num_train_epochs=9, callbacks=lambda api: [api.EarlyStoppingCallback(3)])
    whole = run("transformers", tmp_path / "theirs", CASES["bert, evaluated"], **more)
    last = whole.state.global_step
    assert whole.state.best_global_step < last < 54
    checkpoint = tmp_path / "theirs" / f"checkpoint-{last - 2}"
    resumed = run("ostinato", tmp_path / "ours", CASES["bert, evaluated"], checkpoint, **more)
    assert resumed.state.global_step == last
    assert resumed.state.best_global_step == whole.state.best_global_step
    assert_same(weights_of(whole), weights_of(resumed), "the best weights")


# ------------------------------------------------------------------------------------------------ ours, then theirs


@pytest.mark.parametrize("name", CASES)
def test_their_run_goes_on_from_ours(name: str, their_runs: Any, tmp_path: Path) -> None:
    """transformers' own `train(resume_from_checkpoint=...)`, unaided, ends where both libraries end uninterrupted."""
    whole, _ = their_runs(name)
    ours = run("ostinato", tmp_path / "ours", CASES[name], exports=True)
    assert_same_end(whole, ours)
    for checkpoint in checkpoints(tmp_path / "ours", CASES[name]):
        resumed = run("transformers", tmp_path / "theirs", CASES[name], checkpoint, save_strategy="no")
        assert_same_end(whole, resumed)


def test_exported_checkpoints_are_still_ours(tmp_path: Path) -> None:
    case = CASES["bert"]
    whole = run("ostinato", tmp_path, case, exports=True)
    checkpoint = tmp_path / "checkpoint-8"
    verify(checkpoint)
    assert not is_from_transformers(checkpoint)
    resumed = run("ostinato", tmp_path / "on", case, checkpoint, save_strategy="no")
    assert_same_end(whole, resumed)
    assert resumed.state.log_history[-1]["train_loss"] == whole.state.log_history[-1]["train_loss"]


def test_exported_files_are_plain(tmp_path: Path, place: torch.device) -> None:
    """Loaded by anybody, with no allow-list; the arguments are a dict."""
    run("ostinato", tmp_path, CASES["bert"], exports=True, max_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
    loaded = {
        name: torch.load(checkpoint / name, weights_only=True)
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")
    }
    assert loaded["training_args.bin"] == json.loads((checkpoint / "training_args.json").read_text())
    assert set(loaded["rng_state.pth"]) == {"python", "numpy", "cpu", place.type}


def test_transformers_reads_our_state(tmp_path: Path) -> None:
    """`trainer_state.json` is the same file in both libraries, with callbacks in the same form."""
    run("ostinato", tmp_path, CASES["bert"], exports=True, max_steps=2)
    path = str(tmp_path / "checkpoint-2" / "trainer_state.json")
    with guest("transformers"):
        theirs = dataclasses.asdict(Api("transformers", tmp_path).TrainerState.load_from_json(path))
    assert theirs == dataclasses.asdict(ostinato.TrainerState.load_from_json(path))
    assert theirs["global_step"] == 2
    assert theirs["stateful_callbacks"]["TrainerControl"]["args"]["should_save"] is True


def test_transformers_restores_our_callbacks(tmp_path: Path) -> None:
    case = CASES["bert, evaluated"]
    more = dict(BEST, max_steps=6)
    run("ostinato", tmp_path, case, exports=True, callbacks=lambda api: [api.EarlyStoppingCallback(7)], **more)
    theirs = run(
        "transformers",
        tmp_path / "theirs",
        case,
        tmp_path / "checkpoint-4",
        callbacks=lambda api: [api.EarlyStoppingCallback(3)],
        restore_callback_states_from_checkpoint=True,
        **more,
    )
    patience = [getattr(one, "early_stopping_patience", None) for one in theirs.callback_handler.callbacks]
    assert 7 in patience and 3 not in patience


# ------------------------------------------------------------------------------------------------------- converted


@pytest.mark.parametrize("name", ["bert", "mlp, accumulated"])
def test_their_checkpoint_converted_to_ours(name: str, their_runs: Any, tmp_path: Path) -> None:
    whole, folder = their_runs(name)
    for step in (4, {"bert": 6, "mlp, accumulated": 3}[name]):  # within an epoch, between two
        converted = tmp_path / f"checkpoint-{step}"
        convert(folder / converted.name, converted, to="ostinato")
        verify(converted)
        assert not [path.name for path in converted.iterdir() if path.suffix in (".pt", ".pth", ".bin")]
        resumed = run("ostinato", tmp_path / "on", CASES[name], converted, save_strategy="no")
        assert_same_end(whole, resumed)
        shutil.rmtree(converted)


def test_converted_there_and_back_by_them(their_runs: Any, tmp_path: Path) -> None:
    """theirs -> ours -> theirs: transformers goes on from the result."""
    whole, folder = their_runs("bert")
    convert(folder / "checkpoint-8", tmp_path / "ours", to="ostinato")
    convert(tmp_path / "ours", tmp_path / "theirs", to="transformers")
    resumed = run("transformers", tmp_path / "on", CASES["bert"], tmp_path / "theirs", save_strategy="no")
    assert_same_end(whole, resumed)


def test_our_checkpoint_converted_to_theirs(their_runs: Any, tmp_path: Path) -> None:
    """Both libraries go on from it; ours with every running sum, although the layout has no place for them."""
    whole, _ = their_runs("mlp, accumulated")
    case = CASES["mlp, accumulated"]
    sparse = {"logging_steps": 4}
    ours = run("ostinato", tmp_path / "ours", case, **sparse)
    for step in (2, 3):
        converted = tmp_path / f"checkpoint-{step}"
        convert(tmp_path / "ours" / converted.name, converted, to="transformers")
        assert is_from_transformers(converted)
        theirs = run("transformers", tmp_path / "theirs", case, converted, save_strategy="no", **sparse)
        assert_same(weights_of(whole), weights_of(theirs), "weights")
        again = run("ostinato", tmp_path / "again", case, converted, save_strategy="no", **sparse)
        assert_same_end(ours, again)
        assert again.state.log_history[-1]["train_loss"] == ours.state.log_history[-1]["train_loss"]


# ------------------------------------------------------------------------------------------ what transformers does


def test_transformers_goes_on_without_an_optimizer(their_runs: Any, tmp_path: Path) -> None:
    """The control experiment: a missing file is a fresh optimizer there, without a word; here it is an error."""
    whole, folder = their_runs("bert")
    checkpoint = tmp_path / "checkpoint-8"
    shutil.copytree(folder / checkpoint.name, checkpoint)
    (checkpoint / "optimizer.pt").unlink()
    theirs = run("transformers", tmp_path / "theirs", CASES["bert"], checkpoint, save_strategy="no")
    assert theirs.state.global_step == whole.state.global_step
    assert any(
        not torch.equal(a, b) for a, b in zip(weights_of(whole).values(), weights_of(theirs).values(), strict=True)
    )
    with pytest.raises(CheckpointError, match=r"optimizer\.pt"):
        run("ostinato", tmp_path / "ours", CASES["bert"], checkpoint)


def test_streams_of_a_real_file(their_runs: Any) -> None:
    """What transformers saved is what the streams are set to."""
    _, folder = their_runs("bert")
    path = folder / "checkpoint-8" / "rng_state.pth"
    trusted = torch.load(path, weights_only=False)  # by this test's own run
    read.load_foreign_random_state(path.parent, 0, 1)
    assert random.getstate() == trusted["python"]
    assert torch.equal(torch.get_rng_state(), trusted["cpu"])
    now: Any = np.random.get_state()
    assert now[0] == trusted["numpy"][0] and now[2:] == trusted["numpy"][2:]
    assert np.array_equal(now[1], trusted["numpy"][1])


def test_weights_of_theirs_as_pickles(their_runs: Any, tmp_path: Path) -> None:
    """Older versions wrote `pytorch_model.bin`."""
    whole, folder = their_runs("bert")
    checkpoint = tmp_path / "checkpoint-8"
    shutil.copytree(folder / checkpoint.name, checkpoint)
    model = CASES["bert"].model()
    weights.load_weights(model, checkpoint)
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    resumed = run("ostinato", tmp_path / "ours", CASES["bert"], checkpoint, save_strategy="no")
    assert_same_end(whole, resumed)
    convert(checkpoint, tmp_path / "converted", to="ostinato")
    again = run("ostinato", tmp_path / "again", CASES["bert"], tmp_path / "converted", save_strategy="no")
    assert_same_end(whole, again)
