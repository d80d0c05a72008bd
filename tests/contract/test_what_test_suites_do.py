"""What test suites of trainers look at, beyond numbers: attributes of parts, kinds of errors, files they divide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.support import tiny
from tests.support.apis import Api
from tests.support.parity import run_both
from tests.support.records import assert_same

pytest.importorskip("transformers")


def build(api: Api, *callbacks: Any, **arguments: Any) -> Any:
    rows = tiny.regression_rows(16)
    return api.trainer(
        tiny.seeded(tiny.regression), api.args(**arguments), train_dataset=rows, eval_dataset=rows, callbacks=callbacks
    )


# -------------------------------------------------------------------------------------------------- parts of a trainer


def test_an_optimizer_may_come_from_a_factory(api: Api) -> None:
    """An optimizer that groups the parameters itself (Muon) is made from the model."""

    class Grouped(torch.optim.SGD):
        pass

    class Factory:
        def __call__(self, model: nn.Module, **arguments: Any) -> Any:
            matrices = [one for one in model.parameters() if one.ndim == 2]
            others = [one for one in model.parameters() if one.ndim != 2]
            return Grouped([{"params": matrices}, {"params": others, "lr": 0.25}], **arguments)

    trainer = api.trainer(
        tiny.seeded(tiny.regression),
        api.args(max_steps=3, lr_scheduler_type="constant"),
        train_dataset=tiny.regression_rows(),
        optimizer_cls_and_kwargs=(Factory, {"lr": 0.5}),
    )
    trainer.train()
    made = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # accelerate wraps it
    assert isinstance(made, Grouped)
    assert [group["lr"] for group in made.param_groups] == [0.5, 0.25]


def test_weights_of_a_factorys_optimizer_are_the_same() -> None:
    class Factory:
        def __call__(self, model: nn.Module, **arguments: Any) -> Any:
            return torch.optim.SGD(model.parameters(), **arguments)

    def script(api: Api) -> None:
        rows = tiny.regression_rows()
        trainer = api.trainer(
            tiny.seeded(tiny.regression),
            api.args(max_steps=3),
            train_dataset=rows,
            optimizer_cls_and_kwargs=(Factory, {"lr": 0.1}),
        )
        api.train(trainer)

    theirs, ours = run_both(script)
    assert_same(theirs.weights, ours.weights)


def test_settings_of_accelerate_are_shown(api: Api) -> None:
    asked = {"split_batches": True, "dispatch_batches": True, "even_batches": False, "use_seedable_sampler": False}
    accumulation = {"sync_each_batch": True, "num_steps": 3}
    config = {**asked, "gradient_accumulation_kwargs": accumulation}
    trainer = build(api, accelerator_config=config)
    assert {name: getattr(trainer.accelerator, name) for name in asked} == asked
    assert trainer.accelerator.gradient_state.plugin_kwargs == {"sync_each_batch": True, "num_steps": 1}
    assert trainer.args.gradient_accumulation_steps == 3
    plain = build(api).accelerator
    assert (plain.split_batches, plain.gradient_state.plugin_kwargs) == (False, {"num_steps": 1})


def test_loaders_tell_the_rows_of_all_processes(api: Api) -> None:
    trainer = build(api, per_device_train_batch_size=4, per_device_eval_batch_size=8)
    loader = trainer.get_train_dataloader()
    assert (loader.total_batch_size, loader.total_dataset_length, len(loader)) == (4, 16, 4)
    assert trainer.get_eval_dataloader().total_batch_size == 8


@pytest.mark.parametrize("keeps", [True, False])
def test_the_trainers_own_evaluation_set_may_be_passed(api: Api, keeps: bool) -> None:
    trainer = build(api, dataloader_persistent_workers=keeps, dataloader_num_workers=1 if keeps else 0)
    trainer.accelerator.prepare = lambda loader: loader  # accelerate's wrapper is another one each time
    by_itself, passed = trainer.get_eval_dataloader(), trainer.get_eval_dataloader(trainer.eval_dataset)
    assert (by_itself is passed) == keeps
    if api.is_ours:  # transformers evaluates the rows of the first loader again
        assert trainer.get_eval_dataloader(tiny.regression_rows(8)) is not by_itself


# --------------------------------------------------------------------------------------------------- states, callbacks


@pytest.mark.parametrize("parts", [("args",), ("attributes",), ("args", "attributes")], ids="+".join)
def test_a_state_may_have_one_of_its_parts(api: Api, parts: tuple[str, ...]) -> None:
    if api.name == "transformers" and "args" not in parts:
        pytest.skip("transformers needs the arguments")
    from transformers.trainer_callback import ExportableState as Theirs

    class Counting(api.TrainerCallback, *([Theirs] if api.name == "transformers" else [api.ExportableState])):
        def __init__(self, unit: int = 1) -> None:
            self.unit, self.count = unit, 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.count += self.unit

        def state(self) -> dict[str, Any]:
            whole = {"args": {"unit": self.unit}, "attributes": {"count": self.count}}
            return {name: whole[name] for name in parts}

    saves = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    build(api, Counting(3), **saves).train()
    resumed = build(api, Counting(), **saves, restore_callback_states_from_checkpoint=True)
    resumed.train(resume_from_checkpoint=str(api.output_dir / "checkpoint-2"))
    (found,) = (one for one in resumed.callback_handler.callbacks if type(one) is Counting)
    restored = {"args": found.unit == 3, "attributes": found.count == 6}
    assert restored == {name: name in parts for name in restored}


class Greedy:
    """Runs out of memory at the end of a step, as long as batches are large."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append((state.global_step, state.train_batch_size))  # type: ignore[attr-defined]
        if state.train_batch_size >= 16:
            raise RuntimeError("CUDA out of memory.")


def test_memory_that_runs_out_in_a_callback_makes_batches_smaller(api: Api) -> None:
    class Callback(Greedy, api.TrainerCallback):
        steps: list[tuple[int, int]] = []

    settings = {"auto_find_batch_size": True, "per_device_train_batch_size": 16, "max_steps": 2}
    saves = {"save_strategy": "steps", "save_steps": 1}
    trainer = build(api, Callback(), **settings, **saves)
    trainer.train()
    found = trainer._train_batch_size
    # The step that was taken counts; transformers begins again, with the weights of that step.
    assert Callback.steps == ([(1, 16), (2, found)] if api.is_ours else [(1, 16), (1, found), (2, found)])
    assert found == 14
    resumed = build(api, **settings, **saves)
    assert resumed._train_batch_size == 16
    resumed.train(resume_from_checkpoint=True)
    assert resumed._train_batch_size == found


# --------------------------------------------------------------------------------------------------------- checkpoints


def divide(checkpoint: Path) -> None:
    """Put every weight into a file of its own, as the tools for large models do."""
    whole = checkpoint / "model.safetensors"
    weights = load_file(whole)
    whole.unlink()
    names = {name: f"model-{place:05d}-of-{len(weights):05d}.safetensors" for place, name in enumerate(weights, 1)}
    for name, file in names.items():
        save_file({name: weights[name]}, checkpoint / file)
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def test_weights_may_be_divided_into_shards_afterwards(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    saves = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, "per_device_train_batch_size": 4}
    whole = build(api, **saves)
    whole.train()
    checkpoint = api.output_dir / "checkpoint-2"
    divide(checkpoint)
    resumed = build(api, **saves)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert resumed.state.global_step == 6
    if api.is_ours:
        assert "was divided into the files of model.safetensors.index.json" in capsys.readouterr().err
        (checkpoint / "optimizer.safetensors").unlink()  # anything else that is missing is still an error
        with pytest.raises(Exception, match=r"safetensors is missing"):
            build(api, **saves).train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize("where", ["nothing", "a name"])
def test_errors_about_checkpoints_begin_alike(api: Api, where: str) -> None:
    wanted = True if where == "nothing" else str(api.output_dir / "checkpoint-bogus")
    begins = "No valid checkpoint found in output directory" if wanted is True else "Can't find a valid checkpoint at"
    with pytest.raises(ValueError, match=begins):
        build(api, max_steps=1).train(resume_from_checkpoint=wanted)


# ----------------------------------------------------------------------------------------------------------- arguments


def test_a_class_as_settings_of_accelerate(api: Api) -> None:
    with pytest.raises(NotImplementedError, match="Tried passing in a callable to `accelerator_config`"):
        api.args(accelerator_config=dict)


def test_two_numbers_of_micro_batches(api: Api) -> None:
    args = api.args(
        gradient_accumulation_steps=2, accelerator_config={"gradient_accumulation_kwargs": {"num_steps": 3}}
    )
    with pytest.raises(ValueError, match="The `AcceleratorConfig`'s `num_steps` is set but"):
        api.Trainer(tiny.regression(), args, train_dataset=tiny.regression_rows())


def test_the_best_needs_a_metric(api: Api) -> None:
    with pytest.raises(ValueError, match=r"`args\.metric_for_best_model` must be provided"):
        build(api, save_strategy="best", eval_strategy="epoch")


# ---------------------------------------------------------------------------------------------------------- evaluation


class Boxes(nn.Module):
    """Each row has a number of boxes of its own: labels are a list of dicts, as in object detection."""

    main_input_name = "x"

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: list[dict[str, torch.Tensor]] | None = None) -> dict[str, Any]:
        found = self.layer(x)
        if labels is None:
            return {"boxes": found}
        losses = [(found[row] - target["boxes"]).square().mean() for row, target in enumerate(labels)]
        return {"loss": torch.stack(losses).mean(), "boxes": found}


def box_rows(count: int) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(3)
    return [
        {"x": torch.randn(4, generator=draw), "boxes": torch.randn(1 + number % 3, 4, generator=draw)}
        for number in range(count)
    ]


def collate_boxes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"x": torch.stack([row["x"] for row in rows]), "labels": [{"boxes": row["boxes"]} for row in rows]}


@pytest.mark.parametrize("objects", [True, False])
def test_rows_of_any_kind_are_evaluated(objects: bool) -> None:
    def script(api: Api) -> Any:
        trainer = api.trainer(
            tiny.seeded(Boxes),
            api.args(
                eval_use_gather_object=objects,
                eval_do_concat_batches=False,
                remove_unused_columns=False,
                per_device_eval_batch_size=4,
                max_steps=2,
            ),
            train_dataset=box_rows(8),
            eval_dataset=box_rows(10),
            data_collator=collate_boxes,
            compute_metrics=lambda seen: {
                "boxes": sum(len(row["boxes"]) for batch in seen.label_ids for row in batch),
                "rows": sum(len(batch) for batch in seen.predictions),
            },
        )
        api.train(trainer)
        found = trainer.evaluate()
        return [found["eval_boxes"], found["eval_rows"]]

    theirs, ours = run_both(script)
    assert ours.result == [19, 10]
    assert theirs.result == [19 if objects else 18, 10]  # of a row in a shorter last batch, boxes are cut off
