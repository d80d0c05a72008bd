"""Resuming with other arguments: what is said of each is what happens."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato.arguments.argument import argument
from ostinato.arguments.extras import list_declarations
from tests.support import tiny
from tests.support.apis import Api, guest

BASE: dict[str, Any] = dict(
    per_device_train_batch_size=4,
    max_steps=10,
    save_strategy="steps",
    save_steps=4,
    learning_rate=1e-2,
    weight_decay=0.1,
    warmup_steps=2,
    eval_strategy="steps",
    eval_steps=4,
    metric_for_best_model="loss",
)


class Noisy(tiny.MapDataset):
    """Every read of a row draws."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": [value + 0.1 * random.random() for value in row["x"]]}


def train(folder: Path, checkpoint: Path | None = None, *, build: Any = None, data: Any = None, **rest: Any) -> Any:
    api = Api("ostinato", folder)
    api.set_seed(42)
    own = {name: rest.pop(name) for name in ("optimizers", "cls", "callbacks") if name in rest}
    model = tiny.regression(dropout=0.3) if build is None else build()
    if "optimizers" in own:
        own["optimizers"] = own["optimizers"](model)
    data = Noisy(tiny.regression_rows()) if data is None else data
    trainer = api.trainer(
        model, api.args(**{**BASE, **rest}), train_dataset=data, eval_dataset=tiny.regression_rows(6), **own
    )
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer


@dataclasses.dataclass
class Whole:
    trainer: Any
    checkpoint: Path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    return Whole(train(folder), folder / "checkpoint-4")


def equal(one: Any, other: Any) -> bool:
    theirs = other.model.state_dict()
    return all(torch.equal(weight, theirs[name]) for name, weight in one.model.state_dict().items())


OPTIMIZER = "stays, as part of the optimizer; to change it, fork"
ORDER = "rows of the epoch that is resumed may be seen twice or not at all"
CASES: dict[str, tuple[dict[str, Any], bool, list[str]]] = {
    "nothing": ({}, True, []),
    "what changes no number": (
        {"logging_steps": 3, "save_steps": 5, "eval_steps": 3, "run_name": "x", "dataloader_pin_memory": True},
        True,
        [],
    ),
    "learning rate": (
        {"learning_rate": 5e-2},
        True,
        [
            "learning_rate  0.01 → 0.05  the checkpoint's 0.01 stays, as part of optimizer and schedule; to change "
            "it, fork\n"
        ],
    ),
    "weight decay": ({"weight_decay": 0.5}, True, [f"weight_decay  0.1 → 0.5  the checkpoint's 0.1 {OPTIMIZER}"]),
    "betas": (
        {"adam_beta1": 0.5, "adam_beta2": 0.9, "adam_epsilon": 0.1},
        True,
        [
            f"adam_beta1    0.9 → 0.5    the checkpoint's 0.9 {OPTIMIZER}",
            f"adam_beta2    0.999 → 0.9  the checkpoint's 0.999 {OPTIMIZER}",
            f"adam_epsilon  1e-08 → 0.1  the checkpoint's 1e-08 {OPTIMIZER}",
        ],
    ),
    "another kernel": (
        {"optim": "adamw_torch"},
        True,
        [f"optim  'adamw_torch_fused' → 'adamw_torch'  the checkpoint's 'adamw_torch_fused' {OPTIMIZER}"],
    ),
    "schedule": (
        {"lr_scheduler_type": "cosine"},
        False,
        [
            "lr_scheduler_type  'linear' → 'cosine'  now 'cosine': other learning rates",
            "learning rate: step 5 still has 0.0075; the present schedule, 0.008536 there, follows it",
        ],
    ),
    "warmup": ({"warmup_steps": 6}, False, ["warmup_steps  2 → 6  now 6: other learning rates"]),
    "longer": (
        {"max_steps": 12},
        False,
        ["max_steps  10 → 12  the run ends at step 12, not 10, and the linear schedule with it"],
    ),
    "by epochs instead": ({"max_steps": -1, "num_train_epochs": 10 / 6}, True, []),
    "clipping": ({"max_grad_norm": 0.01}, False, ["max_grad_norm  1.0 → 0.01  now 0.01: other numbers from here on"]),
    "bf16": ({"bf16": True}, False, ["bf16  False → True  now True: other numbers from here on"]),
    "seed": ({"seed": 7}, False, [f"seed  42 → 7  now 7, and so another order: {ORDER}"]),
    "seed of the data": ({"data_seed": 7}, False, [f"data_seed  None → 7  now 7, and so another order: {ORDER}"]),
    "the seed under another name": ({"data_seed": 42}, True, ["data_seed  None → 42  now 42: the same numbers"]),
    "a seed that data do not depend on": (
        {"seed": 7, "data_seed": 42},
        True,
        ["seed       42 → 7     the checkpoint's 42 stays, as random streams are part of the checkpoint"],
    ),
    "workers": (
        {"dataloader_num_workers": 2},
        True,
        ["dataloader_num_workers  0 → 2  now 2: the same numbers"],
    ),
    "batch size": (
        {"per_device_train_batch_size": 8},
        False,
        ["now 8: other numbers from here on", "8 rows per step instead of 4: every row is still seen once"],
    ),
    "accumulation": (
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        False,
        [
            "per_device_train_batch_size  4 → 2  now 2: other numbers from here on",
            "gradient_accumulation_steps  1 → 2  now 2: other numbers from here on",
        ],
    ),
    "in sequence": (
        {"train_sampling_strategy": "sequential"},
        False,
        ["train_sampling_strategy  'random' → 'sequential'  now 'sequential', and so another order"],
    ),
    "shared streams": (
        {"isolate_rng": False},
        False,
        ["isolate_rng  True → False  now False: other numbers where rows, evaluations or callbacks draw at random"],
    ),
    "another metric": (
        {"metric_for_best_model": "runtime"},
        True,
        ["metric_for_best_model  'loss' → 'runtime'  now 'runtime'; the best so far, "],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_is_what_happens(case: str, whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    changes, same, expected = CASES[case]
    shutil.copytree(whole.checkpoint, tmp_path / "checkpoint-4")
    capsys.readouterr()
    resumed = train(tmp_path, tmp_path / "checkpoint-4", **{"save_strategy": "no", **changes})
    said = capsys.readouterr().err
    assert equal(resumed, whole.trainer) == same, said
    for line in expected:
        assert line in said
    assert ("not everything is as it was in checkpoint-4:" in said) == bool(expected)
    assert ("cannot be bit for bit the run as it was" in said) == (not same)
    lines = said.splitlines()
    beginnings = [line for line in lines if line.startswith("ostinato: not everything")]
    assert len(beginnings) == bool(expected), "one note"


def test_a_schedule_without_an_end_stays_the_same_when_the_run_becomes_longer(tmp_path: Path, capsys: Any) -> None:
    constant = {"lr_scheduler_type": "constant", "warmup_steps": 0}
    longer = train(tmp_path / "a", max_steps=12, **constant)
    train(tmp_path / "b", max_steps=8, **constant)
    capsys.readouterr()
    resumed = train(tmp_path / "b", tmp_path / "b" / "checkpoint-8", max_steps=12, **constant)
    said = capsys.readouterr().err
    assert equal(resumed, longer)
    assert "max_steps  8 → 12  the run ends at step 12, not 8\n" in said
    assert "learning rate" not in said and "cannot be" not in said


def test_a_schedule_that_ends_at_a_rate(tmp_path: Path, capsys: Any) -> None:
    """Its end is given as a rate, and its shape is computed from the learning rate of now."""
    ending = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-3}}
    first = train(tmp_path / "a", **ending)
    capsys.readouterr()
    resumed = train(tmp_path / "b", tmp_path / "a" / "checkpoint-4", learning_rate=5e-2, **ending)
    said = capsys.readouterr().err
    assert not equal(resumed, first)
    assert "the checkpoint's 0.01 stays, but the end of the cosine_with_min_lr schedule is computed from" in said


def test_options_of_a_schedule_that_goes_by_a_metric_stay(tmp_path: Path, capsys: Any) -> None:
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "warmup_steps": 0, "save_steps": 4}
    first = train(tmp_path / "a", **plateau, lr_scheduler_kwargs={"patience": 0, "threshold": 10.0})
    capsys.readouterr()
    resumed = train(tmp_path / "b", tmp_path / "a/checkpoint-4", **plateau, lr_scheduler_kwargs={"factor": 0.9})
    assert equal(resumed, first)
    assert "stays, as part of the schedule; to change it, fork" in capsys.readouterr().err


def test_an_optimizer_of_ones_own_is_not_made_from_arguments(tmp_path: Path, capsys: Any) -> None:
    def optimizers(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)

    train(tmp_path / "a", optimizers=optimizers)
    capsys.readouterr()
    changed = {"learning_rate": 1.0, "weight_decay": 0.0, "lr_scheduler_type": "cosine", "warmup_steps": 0}
    train(tmp_path / "b", tmp_path / "a" / "checkpoint-4", optimizers=optimizers, **changed)
    assert "not everything" not in capsys.readouterr().err


def test_streams_are_dealt_out_to_workers(tmp_path: Path, capsys: Any) -> None:
    rows = tiny.StreamDataset(tiny.regression_rows())
    train(tmp_path / "a", data=rows)
    capsys.readouterr()
    train(tmp_path / "b", tmp_path / "a" / "checkpoint-4", data=rows, dataloader_num_workers=1)
    assert "now 1: the stream divides its rows among workers in another way" in capsys.readouterr().err


def test_gradient_checkpointing_computes_the_same(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("transformers")
    rows = tiny.language_rows(12)
    settings = {"build": tiny.gpt2, "data": rows, "eval_strategy": "no", "metric_for_best_model": None, "max_steps": 6}
    with guest("transformers"):
        first = train(tmp_path / "a", **settings)
        capsys.readouterr()
        resumed = train(tmp_path / "b", tmp_path / "a" / "checkpoint-4", **settings, gradient_checkpointing=True)
    assert "gradient_checkpointing  False → True  now True: the same numbers" in capsys.readouterr().err
    assert equal(resumed, first)


@pytest.mark.parametrize("changes", [{"optim": "sgd"}, {"lr_scheduler_type": "reduce_lr_on_plateau"}])
def test_another_class_is_refused(changes: dict[str, Any], whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not the one in"):
        train(tmp_path, whole.checkpoint, **changes)


def test_another_model_is_refused(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"inner\.weight"):
        train(tmp_path, whole.checkpoint, build=lambda: tiny.regression(hidden=8))


def test_secrets_are_not_shown(whole: Whole, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    train(tmp_path, whole.checkpoint, hub_token="hf_very_secret", max_grad_norm=0.5)
    assert "max_grad_norm" in (said := capsys.readouterr().err) and "secret" not in said


def test_finished_runs_say_how_to_go_on(whole: Whole, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    train(tmp_path, whole.checkpoint.parent / "checkpoint-10")
    assert "nothing is left to do; resume_mode='extend'" in capsys.readouterr().err


WINDOWS: dict[str, Any] = {"train_sampling_strategy": "group_by_length", "length_window": 2}
GROUPED: dict[str, Any] = {"train_sampling_strategy": "group_by_length"}
ORDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in sequence": ({}, {"train_sampling_strategy": "sequential"}),
    "by length": ({}, GROUPED),
    "by length no more": (GROUPED, {}),
    "in windows": (GROUPED, WINDOWS),
    "in other windows": (WINDOWS, {**WINDOWS, "length_window": 4}),
    "by tokens": ({}, {"max_tokens_per_batch": 24}),
    "by tokens no more": ({"max_tokens_per_batch": 24}, {}),
    "more tokens": ({"max_tokens_per_batch": 24}, {"max_tokens_per_batch": 48}),
    "other windows of tokens": (
        {**WINDOWS, "max_tokens_per_batch": 24},
        {**WINDOWS, "max_tokens_per_batch": 24, "length_window": 4},
    ),
    "seed": ({}, {"seed": 7}),
    "seed and size": ({}, {"seed": 7, "per_device_train_batch_size": 8}),
    "seed, by length": (GROUPED, {**GROUPED, "seed": 7}),
    "seed, in windows": (WINDOWS, {**WINDOWS, "seed": 7}),
    "seed, in sequence": (
        {"train_sampling_strategy": "sequential"},
        {"train_sampling_strategy": "sequential", "seed": 7},
    ),
    "seed of the data": ({}, {"data_seed": 7}),
    "seed of the data, by length": (GROUPED, {**GROUPED, "data_seed": 7}),
    "size": ({}, {"per_device_train_batch_size": 8}),
}


@pytest.mark.parametrize("case", ORDERS)
def test_what_is_said_of_rows_is_true(case: str, tmp_path: Path, capsys: Any) -> None:
    """It is said that rows may be seen twice where they are, and that each is seen once where it is."""
    before, after = ORDERS[case]
    lengths = torch.randint(1, 9, (22,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [
        {"x": [n / 30, 1.0, 0.0, -1.0], "labels": float(n), "input_ids": [1] * size} for n, size in enumerate(lengths)
    ]
    settings: dict[str, Any] = {
        "data": rows,
        "max_steps": -1,
        "num_train_epochs": 1,
        "save_steps": 3,
        "eval_strategy": "no",
    }
    settings["metric_for_best_model"] = None
    seen: list[float] = []

    class Sees(ostinato.Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            seen.extend(inputs["labels"].tolist())
            return super().compute_loss(model, inputs, *args, **kwargs)

    class Stops(ostinato.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            control.should_training_stop = state.global_step == 3

    train(tmp_path, cls=Sees, callbacks=[Stops()], **{**settings, **before})
    capsys.readouterr()
    train(tmp_path, tmp_path / "checkpoint-3", cls=Sees, **{**settings, **after})
    said = capsys.readouterr().err
    assert ("may be seen twice or not at all" in said) == (sorted(seen) != list(range(22))), said
    assert "is still seen once" not in said or sorted(seen) == list(range(22)), said


def test_every_argument_says_what_a_change_means() -> None:
    """`on_resume` has no default: whoever declares an argument decides."""
    classes = (ostinato.TrainingArguments, ostinato.Extras)
    names = {field.name for cls in classes for field in dataclasses.fields(cls) if field.init}
    assert list_declarations(ostinato.TrainingArguments).keys() == names
    with pytest.raises(TypeError, match="on_resume"):
        argument(1, help="An argument without a rule.")  # type: ignore[call-arg]
