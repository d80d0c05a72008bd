"""Train two towers to find what belongs together, with a loss of our own.

    python examples/two_tower.py

Dates in two notations: 1987-03-07 and 7 March 1987 should end up as the same vector, others as another. The dates are
made up, so nothing is downloaded. Seconds on one core.
"""

import random
import re
import zlib
from datetime import date, timedelta

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed

BUCKETS, LENGTH = 4096, 4


class TwoTowerTrainer(Trainer):
    """`compute_loss` says what is computed from a batch; the model itself knows no loss, and no pairs."""

    def compute_loss(self, model, inputs, return_outputs=False):
        source = model(inputs["text1_input_ids"], inputs["text1_attn_masks"])
        target = model(inputs["text2_input_ids"], inputs["text2_attn_masks"])
        similarity = nn.functional.cosine_similarity(source, target)
        loss = nn.functional.mse_loss(similarity, inputs["labels"])
        return (loss, {"similarity": similarity}) if return_outputs else loss


class Encoder(nn.Module):
    """A text as one vector: the mean over its pieces, and what two layers make of it."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.pieces = nn.Embedding(BUCKETS, width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, input_ids, attention_mask):
        weights = attention_mask.unsqueeze(-1).float()
        mean = (self.pieces(input_ids) * weights).sum(1) / weights.sum(1)
        return mean + self.layers(mean)


def encode(text: str) -> dict[str, list[int]]:
    """Every piece of a text is put into one of so many buckets: `1987-`, `03-`, `07` and `7`, `March`, `1987`."""
    ids = [zlib.crc32(piece.encode()) % BUCKETS for piece in re.findall(r"\w+-?", text)]
    return {"input_ids": ids + [0] * (LENGTH - len(ids)), "attn_masks": [1] * len(ids) + [0] * (LENGTH - len(ids))}


def written_out(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def make_dates(count: int, seed: int) -> list[date]:
    draw = random.Random(seed)
    return [date(1950, 1, 1) + timedelta(days=draw.randrange(36_500)) for _ in range(count)]


def make_rows(dates: list[date], seed: int):
    """Every date with itself (1.0), with one that differs in one part, and with any other (0.0)."""
    draw, rows = random.Random(seed), []
    for day in dates:
        parts = {"day": draw.randint(1, 28), "month": draw.randint(1, 12), "year": draw.randint(1950, 2049)}
        part = draw.choice(list(parts))
        near = day.replace(**{part: parts[part]}) if day.day <= 28 else draw.choice(dates)
        for other in (day, near, draw.choice(dates)):
            first, second = encode(day.isoformat()), encode(written_out(other))
            row = {f"text1_{name}": value for name, value in first.items()}
            row |= {f"text2_{name}": value for name, value in second.items()}
            rows.append({**row, "labels": float(other == day)})
    return rows


def accuracy(prediction):
    return {"accuracy": float(((prediction.predictions > 0.5) == (prediction.label_ids > 0.5)).mean())}


@torch.no_grad()
def search(model: nn.Module, dates: list[date]) -> list[date]:
    """For every date in one notation, the one whose other notation has the nearest vector."""
    model.eval()
    vectors, device = [], next(model.parameters()).device
    for texts in ([day.isoformat() for day in dates], [written_out(day) for day in dates]):
        columns = zip(*(encode(text).values() for text in texts))
        vectors.append(nn.functional.normalize(model(*(torch.tensor(column, device=device) for column in columns))))
    return [dates[place] for place in (vectors[0] @ vectors[1].T).argmax(1).tolist()]


def main(epochs: int = 6) -> tuple[float, float]:
    """Train, then search; returns the share of dates that are found, after training and before."""
    set_seed(42)
    unseen = sorted(set(make_dates(300, seed=1)))
    args = TrainingArguments(
        output_dir="runs/two_tower",
        num_train_epochs=epochs,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=300,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_strategy="epoch",
        eval_strategy="epoch",
        save_strategy="no",
        remove_unused_columns=False,  # compute_loss takes them apart: forward has other names
        label_names=["labels"],
    )
    trainer = TwoTowerTrainer(
        Encoder(),
        args,
        train_dataset=make_rows([day for day in make_dates(3000, seed=0) if day not in unseen], seed=2),
        eval_dataset=make_rows(unseen, seed=3),
        compute_metrics=accuracy,
    )
    before = sum(map(date.__eq__, search(trainer.model, unseen), unseen)) / len(unseen)
    trainer.train()

    found = search(trainer.model, unseen)
    after = sum(map(date.__eq__, found, unseen)) / len(unseen)
    print(
        f"\n{after:.1%} of {len(unseen)} unseen dates are found by their other notation, {before:.1%} before training:"
    )
    for day, other in list(zip(unseen, found))[::60]:
        print(f"  {day.isoformat()} -> {written_out(other):18} {'✓' if day == other else '✗'}")
    return after, before


if __name__ == "__main__":
    main()
