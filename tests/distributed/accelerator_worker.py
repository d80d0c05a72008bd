"""What each process of the tests of `trainer.accelerator` runs: `accelerator_worker.py OUT_DIR LIBRARY`.

Rank r writes `rank-r.json`. LIBRARY is transformers, whose accelerator is the real one, or ostinato.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

OUT, LIBRARY = Path(sys.argv[1]), importlib.import_module(sys.argv[2])
HELPERS = (LIBRARY, LIBRARY)
if sys.argv[2] == "transformers":
    HELPERS = tuple(importlib.import_module(f"transformers.{home}") for home in ("trainer_pt_utils", "trainer_utils"))


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


class OwnLoader(LIBRARY.Trainer):
    """Hands a loader of its own to the accelerator, and notes the rows it gets."""

    def get_train_dataloader(self) -> Any:
        rows = self.train_dataset
        loader = DataLoader(rows, sampler=RandomSampler(rows), batch_size=4, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        seen.append(inputs["x"][:, 0].int().tolist())
        return super().training_step(model, inputs, num_items_in_batch)


seen: list[list[int]] = []
args = LIBRARY.TrainingArguments(
    str(OUT),
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    save_strategy="no",
    num_train_epochs=2,
    logging_steps=1,
    learning_rate=1e-4,
    dataloader_pin_memory=False,
)
data = [{"x": [float(i), 1.0], "labels": float(i)} for i in range(16)]
trainer = OwnLoader(Regression(), args, train_dataset=data)
trainer.train()

view, rank = trainer.accelerator, trainer.args.process_index
uneven = torch.full((2, 2 + rank), float(rank))
if rank == 1:
    view.set_trigger()
with view.split_between_processes(list(range(5)), apply_padding=True) as part:
    split = list(part)

view.save_state(str(OUT / "state"))
saved, draw = [one.detach().clone() for one in trainer.model.parameters()], torch.rand(1).item()
with torch.no_grad():
    for one in trainer.model.parameters():
        one.zero_()
view.load_state(str(OUT / "state"))
told = {
    "restored": [torch.equal(a, b) for a, b in zip(trainer.model.parameters(), saved, strict=True)],
    "draws": torch.rand(1).item() == draw,
    "triggered": [view.check_trigger(), view.check_trigger()],
    "split": split,
    "on the last": view.on_last_process(lambda: "ran")(),
    "on the first": view.on_process(lambda: "ran", process_index=0)(),
    "seen": seen,
    "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
    "padded": view.gather(view.pad_across_processes(uneven, dim=1, pad_index=-7)).tolist(),
    "padded in front": view.pad_across_processes(uneven, dim=1, pad_index=-7, pad_first=True).tolist(),
    "mean": view.reduce(torch.tensor(float(rank + 1)), "mean").item(),
    "sum": view.reduce({"a": torch.tensor(float(rank + 1))}, "sum")["a"].item(),
    "gathered": view.gather_for_metrics(torch.tensor([rank])).tolist(),
    "objects": view.gather_for_metrics([{"rank": rank}, "word"], use_gather_object=True),
    "concatenated": HELPERS[0].distributed_concat([torch.tensor([[rank, 1]])], num_total_examples=1)[0].tolist(),
    "processes": HELPERS[1].total_processes_number(0),
    "type": str(view.distributed_type.value if sys.argv[2] == "transformers" else view.distributed_type),
    "who": [view.num_processes, view.process_index, view.is_main_process, view.state.num_processes],
    "of the arguments": [args.distributed_state.num_processes, args.distributed_state.process_index],
    "unwrapped": view.unwrap_model(trainer.model_wrapped) is trainer.model,
}
(OUT / f"rank-{rank}.json").write_text(json.dumps(told))
