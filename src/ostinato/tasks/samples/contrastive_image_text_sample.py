"""Sample for images and texts: coloured shapes, and captions that name both."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from . import Sample, build_command, write_rows
from .sentences import create_random, pick
from .shapes import COLORS, SHAPES, draw_shape, save_picture

SIZES = (("train", 320), ("validation", 96), ("test", 32))
TINY_CLIP = {
    "model_type": "clip",
    "projection_dim": 32,
    "vision_config": {
        "image_size": 32, "patch_size": 8, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128,
    },
    "text_config": {
        "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 64,
    },
}  # fmt: skip
OPTIONS = (
    "--train_tokenizer --vocab_size 200 --max_seq_length 16 --do_train --do_eval --do_predict --num_train_epochs 10 "
    "--per_device_train_batch_size 16 --learning_rate 2e-3 --eval_strategy epoch --logging_steps 20 --report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Draw shapes, with a caption each."""
    numbers, files, captions = create_random(0), {}, set()
    for split, count in SIZES:
        rows = []
        for number in range(count):
            shape, color = pick(SHAPES, numbers), pick(tuple(COLORS), numbers)
            file = Path(split) / f"{number:03}.png"
            save_picture(draw_shape(shape, color, numbers)[0], directory / file)
            rows.append({"image": str(file), "caption": f"a {color} {shape}"})
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        captions = {row["caption"] for row in rows} if split == "validation" else captions
    config = directory / "config.json"
    config.write_text(json.dumps(TINY_CLIP))
    words = [*build_command(files), "--config_name", str(config), *shlex.split(OPTIONS)]
    meaning = f"a random one of the {len(captions)} captions"
    return Sample(words, "eval_image_to_text_recall_at_1", 1 / len(captions), meaning)
