"""What client libraries do with a trainer that their own tests would miss here: the same on both libraries."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from apis import Api
from both import check_parity
from torch import nn

pytest.importorskip("transformers")


class Dropping(nn.Module):
    """A model whose inside was loaded for use: it is in evaluation mode, and the model itself is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).eval()

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        prediction = self.inside(x).squeeze(-1)
        return {"loss": ((prediction - labels) ** 2).mean(), "logits": prediction}


def test_all_of_a_model_is_trained_in_training_mode() -> None:
    modes: list[bool] = []

    def script(api: Api) -> None:
        model = Dropping()
        model.inside.register_forward_hook(lambda module, inputs, output: modes.append(module.training))
        args = api.args(max_steps=4, **api.ours(isolate_rng=False))
        api.trainer(model, args, train_dataset=tiny.regression_rows()).train()

    check_parity(script)
    assert modes
    assert modes.count(True) >= 8  # four steps each; what is tried beforehand leaves no trace


@pytest.mark.parametrize("name", ["params", "optimizer_dict"])
def test_an_optimizer_may_be_given_its_groups(name: str) -> None:
    def script(api: Api) -> list[int]:
        class Grouped(api.Trainer):
            @staticmethod
            def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> Any:
                weights = [one for one in model.parameters() if one.dim() > 1]
                return torch.optim.SGD, {"lr": args.learning_rate, name: [{"params": weights}]}

        args = api.args(max_steps=3, **api.ours(isolate_rng=False))
        trainer = api.trainer(tiny.regression(), args, cls=Grouped, train_dataset=tiny.regression_rows())
        trainer.train()
        return [len(group["params"]) for group in trainer.optimizer.param_groups]

    theirs, _ = check_parity(script)
    assert theirs.result == [2]  # one group, the two weights in it


def test_batches_may_be_lists_that_the_step_makes_into_inputs() -> None:
    def script(api: Api) -> None:
        class FromLists(api.Trainer):
            def _prepare_inputs(self, inputs: Any) -> Any:
                return super()._prepare_inputs(
                    {
                        "input_ids": torch.tensor([row["input_ids"] for row in inputs]),
                        "labels": torch.tensor([row["labels"] for row in inputs]),
                    }
                )

        args = api.args(max_steps=3, remove_unused_columns=False, **api.ours(isolate_rng=False))
        rows = tiny.classification_rows()
        api.trainer(tiny.bert(), args, cls=FromLists, train_dataset=rows, data_collator=list).train()

    check_parity(script)


def test_the_state_of_accelerate_may_be_configured_already(ours: Api) -> None:
    args = ours.args(accelerator_config={"use_configured_state": True})
    assert args.distributed_state.num_processes == 1
    assert args.distributed_state.is_main_process
    assert args.distributed_state.distributed_type in ("NO",)
