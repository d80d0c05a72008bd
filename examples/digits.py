"""Learn to read handwritten digits, then look at what was read right and what was not.

    python examples/digits.py

1,797 scans of 8 x 8 pixels that come with scikit-learn, so nothing is downloaded. Seconds, not minutes, on a laptop.
"""

import torch
from rich.columns import Columns
from rich.console import Console
from rich.text import Text
from sklearn.datasets import load_digits
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed


class DigitReader(nn.Module):
    """Any module will do that takes the columns of a row by name and, given labels, returns a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(block(1, 32), block(32, 64), nn.MaxPool2d(2), block(64, 128))
        self.classify = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 10))

    def forward(self, pixels, labels=None):
        logits = self.classify(self.features(pixels))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def block(channels_in: int, channels_out: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU())


def load_rows():
    """A dataset is anything with a length and rows: here, two lists of dicts.

    The last quarter is held out, unshuffled: neighbours in the file are often by the same hand, and we want others.
    """
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    rows = [{"pixels": image, "labels": int(label)} for image, label in zip(pixels, labels)]
    return rows[:1350], rows[1350:]


def accuracy(prediction):
    """The logits and labels of the whole evaluation set go in, named numbers come out."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main() -> None:
    set_seed(42)
    train_rows, test_rows = load_rows()
    args = TrainingArguments(
        output_dir="runs/digits",
        num_train_epochs=12,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=256,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        logging_strategy="epoch",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
    )
    trainer = Trainer(DigitReader(), args, train_dataset=train_rows, eval_dataset=test_rows, compute_metrics=accuracy)
    trainer.train()

    answers = trainer.predict(test_rows).predictions.argmax(-1).tolist()
    show(test_rows, answers, checkpoint=f"runs/digits/checkpoint-{trainer.state.global_step}")


def show(rows, answers, checkpoint) -> None:
    """Draw some digits that were read right, some that were not, and say what to do next."""
    right = [draw(row, answer) for row, answer in zip(rows, answers) if answer == row["labels"]]
    wrong = [draw(row, answer) for row, answer in zip(rows, answers) if answer != row["labels"]]
    console = Console(highlight=False)
    console.print(f"\n[bold]{len(right)} of {len(rows)} unseen digits read right ({len(right) / len(rows):.1%}).[/]\n")
    console.print(Columns(right[:50:10], padding=0))
    if wrong:
        console.print(f"[bold]{len(wrong)} read wrong.[/]\n")
        console.print(Columns(wrong[:5], padding=0))
    console.print(
        f"[bold]Saved:[/] {checkpoint}\n\n"
        "[bold]What to try next[/]\n"
        "  Open runs/digits/report.html in a browser: the run on one page.\n"
        "  Change the model or an argument in examples/digits.py and run it again.\n"
        "  Call trainer.train(resume_from_checkpoint=True) with more epochs: it goes on.\n"
        "  In a script of yours, import Trainer and TrainingArguments from ostinato.\n"
        "  Read src/ostinato/engine/loop.py: the loop that just ran is one page."
    )


def draw(row, answer) -> Text:
    """The scan at twice its size, two pixels to a character, with a caption."""
    large = nn.functional.interpolate(row["pixels"][None], scale_factor=2, mode="bicubic")[0, 0]
    ink = (large > 0.4).int().tolist()
    lines = ["".join(" ▀▄█"[above + 2 * below] for above, below in zip(*pair)) for pair in zip(ink[::2], ink[1::2])]
    is_right = answer == row["labels"]
    caption = f"✓ {answer}" if is_right else f"✗ {answer}, is a {row['labels']}"
    return Text("\n".join([*lines, f"{caption:^16}", ""]), style="green" if is_right else "red")


if __name__ == "__main__":
    main()
