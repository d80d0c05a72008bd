"""The settings of `accelerator_config` that change a run change it as in transformers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from ostinato.core.notices import forget_notices
from tests.support.apis import Api
from tests.support.parity import check_parity
from tests.support.tiny import regression, regression_rows

pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def accumulate(**options: Any) -> dict[str, Any]:
    return {"accelerator_config": {"gradient_accumulation_kwargs": options}}


@pytest.mark.parametrize(
    "given",
    [
        {"accelerator_config": {"use_seedable_sampler": False}},
        {"accelerator_config": {"split_batches": True}},
        {"accelerator_config": {"dispatch_batches": True}},
        accumulate(num_steps=2),
        {**accumulate(sync_each_batch=True), "gradient_accumulation_steps": 2},
        {**accumulate(adjust_scheduler=False, sync_with_dataloader=True), "gradient_accumulation_steps": 2},
    ],
    ids=["seedable", "split", "dispatch", "num_steps", "sync_each", "others"],
)
@pytest.mark.filterwarnings("ignore")
def test_one_process(given: dict[str, Any]) -> None:
    def script(api: Api) -> Any:
        args = api.args(num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, **deepcopy(given))
        trainer = api.trainer(regression(), args, train_dataset=regression_rows(16))
        trainer.train()
        return trainer

    check_parity(script)


def test_the_order_is_another_one_and_is_resumed(ours: Api) -> None:
    """Without the seedable sampler, the order of a run continues after a checkpoint."""

    def weights(*, resume: bool = False, **arguments: Any) -> Any:
        args = ours.args(
            num_train_epochs=2, per_device_train_batch_size=4, save_strategy="steps", save_steps=3, **arguments
        )
        trainer = ours.trainer(regression(), args, train_dataset=regression_rows(16))
        trainer.train(resume_from_checkpoint=str(ours.output_dir / "checkpoint-3") if resume else None)
        return [parameter.tolist() for parameter in trainer.model.parameters()]

    drawn = {"accelerator_config": {"use_seedable_sampler": False}}
    assert weights() != weights(**drawn)
    assert weights(**drawn) == weights(**drawn, resume=True)


def test_what_has_no_effect_is_told(ours: Api, capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    ours.args(**accumulate(sync_each_batch=True, adjust_scheduler=True))
    told = capsys.readouterr().err
    assert "sync_each_batch has no effect" in told and "adjust_scheduler has no effect" in told


def test_the_number_of_steps_is_taken_over(ours: Api) -> None:
    assert ours.args(**accumulate(num_steps=3)).gradient_accumulation_steps == 3


def test_two_numbers_of_steps_contradict_each_other(api: Api) -> None:
    with pytest.raises(ValueError, match="num_steps"):  # transformers says so when the trainer is made
        args = api.args(gradient_accumulation_steps=4, **accumulate(num_steps=2))
        api.trainer(regression(), args, train_dataset=regression_rows(16))
