"""What each process of the test of generation runs: `generation_worker.py OUT_DIR`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from ostinato import Seq2SeqTrainer, Seq2SeqTrainingArguments

ROWS, VOCAB, FILLER = 11, 20, 19


class Counter(nn.Module):
    """For a row n it writes n, n, … : `n % 4 + 1` times. A batch is as wide as its longest row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)

    def forward(self, number, labels=None):
        logits = self.table(number)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    def generate(self, number, **options):
        lengths = number % 4 + 1
        wide = number[:, None].expand(-1, int(lengths.max()))
        return torch.where(torch.arange(wide.shape[1]) < lengths[:, None], wide, FILLER)


def main(out: Path) -> None:
    torch.manual_seed(0)
    data = [{"number": torch.tensor(n), "labels": torch.tensor(n % 3)} for n in range(ROWS)]
    args = Seq2SeqTrainingArguments(
        str(out / "run"), per_device_eval_batch_size=2, predict_with_generate=True, use_cpu=True, disable_tqdm=True
    )
    trainer = Seq2SeqTrainer(Counter(), args, processing_class=SimpleNamespace(pad_token_id=FILLER))
    prediction = trainer.predict(data)
    report = {
        "predictions": prediction.predictions.tolist(),
        "labels": prediction.label_ids.tolist(),
        "loss": prediction.metrics["test_loss"],
        "world": args.world_size,
    }
    (out / f"rank-{args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
