"""Reading images: what decoding and augmenting one costs beside Pillow and numpy by hand, and how long training waits.

    python benchmarks/media_reading.py

One image: CPU time of a row of `image-classification` (decode, crop, mirror, normalize) by that of the same done by
hand, in turns. An epoch with two workers: the share of the time that training waits for data, beside a plain loop over
a plain `DataLoader` with the same rows. JPEGs of 224 pixels are drawn into a temporary directory.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from ostinato.report import read_run
from ostinato.tasks import run

SIDE, MODEL = 224, {"patch_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def draw_images(directory: Path, count: int) -> Path:
    """Write JPEGs of smooth noise, as large as photographs of that size are."""
    numbers = np.random.RandomState(0)
    for number in range(count):
        coarse = Image.fromarray(numbers.randint(0, 256, (28, 28, 3)).astype(np.uint8))
        path = directory / "ab"[number % 2] / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=90)
    return directory


def read_by_hand(path: Path) -> np.ndarray:
    """Decode and augment as somebody would with Pillow and numpy alone: a random crop, a mirror, normalized values."""
    with path.open("rb") as file:
        image = Image.open(io.BytesIO(file.read())).convert("RGB")
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if wide <= width and high <= height:
            break
    left, top = random.randint(0, max(0, width - wide)), random.randint(0, max(0, height - high))
    box = (left, top, min(width, left + wide), min(height, top + high))
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    values = np.asarray(image, dtype=np.float32) / 255
    values = (values - np.float32(0.5)) / np.float32(0.5)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def compare_rows(rows: Any, paths: list[Path], turns: int) -> None:
    ratios, costs = [], []
    for _ in range(turns):
        spent = []
        for read in (lambda n: rows[n], lambda n: read_by_hand(paths[n])):
            begin = time.process_time()
            for number in range(len(paths)):
                read(number)
            spent.append((time.process_time() - begin) / len(paths) * 1000)
        ratios.append(spent[0] / spent[1])
        costs.append(spent)
    ours, hand = (statistics.median(column) for column in zip(*costs, strict=True))
    print(f"one image: {ours:.2f} ms, by hand {hand:.2f} ms; ratio {statistics.median(ratios):.3f} of {turns} turns")


def measure_plain_loop(trainer: Any, workers: int) -> tuple[float, float]:
    """Return the seconds that a plain loop waits for data, and those of the whole epoch."""
    torch.manual_seed(0)
    model = type(trainer.model)(trainer.model.config)
    optimizer = torch.optim.AdamW(model.parameters())
    size = trainer.args.per_device_train_batch_size
    begin, waited = time.perf_counter(), 0.0
    batches = iter(DataLoader(trainer.train_dataset, batch_size=size, shuffle=True, num_workers=workers))
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited, time.perf_counter() - begin
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        directory = draw_images(Path(place, "train"), options.images)
        paths = sorted(directory.glob("*/*.jpg"))
        overrides = ",".join(f"{name}={value}" for name, value in {"image_size": SIDE, **MODEL}.items())
        ours, plain = [], []
        for turn in range(options.turns):
            words = ["--train_dir", str(directory), "--do_train", "--train_val_split", "0", "--model_type", "vit"]
            words += [
                "--config_overrides",
                overrides,
                "--num_train_epochs",
                "1",
                "--per_device_train_batch_size",
                "16",
            ]
            words += ["--dataloader_num_workers", str(options.workers), "--save_strategy", "no", "--report_to", "none"]
            words += ["--rehearse", "false", "--output_dir", f"{place}/out-{turn}", "--disable_tqdm", "true"]
            trainer = run("image-classification", words).trainer
            seconds = read_run(f"{place}/out-{turn}").seconds
            ours.append((seconds.get("data", 0.0), sum(seconds.values())))
            plain.append(measure_plain_loop(trainer, options.workers))
        compare_rows(trainer.train_dataset, paths[:100], options.turns)
        for name, measured in (("ours", ours), ("plain DataLoader", plain)):
            waited, whole = (statistics.median(column) for column in zip(*measured, strict=True))
            print(f"{name}: waits {waited:.2f} s of {whole:.2f} s ({waited / whole:.1%})")
        ratio = statistics.median(one[0] / other[0] for one, other in zip(ours, plain, strict=True))
        print(f"waiting, ours by plain: {ratio:.2f} (median of {options.turns} turns)")


if __name__ == "__main__":
    main()
