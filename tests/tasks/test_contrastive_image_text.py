"""Images and texts: the sample, the same losses as a plain program of transformers, two models, frozen parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.contrastive_image_text import collate_pairs, measure_recall
from ostinato.tasks.samples.sentences import create_random, pick
from ostinato.tasks.samples.shapes import COLORS, SHAPES, draw_shape, save_picture
from ostinato.tasks.tokenizers import BERT, train_tokenizer
from tests.support.apis import guest
from tests.support.real_data import on_real_data, read_table
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, save_bert, write_rows

pillow = pytest.importorskip("PIL.Image")
TASK = "contrastive-image-text"
SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false", "--max_seq_length", "8"),
]
VISION: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


@pytest.fixture(scope="module")
def models(shelf: Path) -> dict[str, str]:
    """Directories with a ViT, a BERT and a dual encoder of both."""
    texts = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]
    tokenizer = train_tokenizer(texts * 4, 100, BERT)
    text = save_bert(tokenizer, shelf / "text")
    transformers.set_seed(3)
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(shelf / "vision")
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    processor.save_pretrained(shelf / "vision")
    pair = transformers.VisionTextDualEncoderModel.from_vision_text_pretrained(str(shelf / "vision"), text)
    pair.save_pretrained(shelf / "pair")
    transformers.VisionTextDualEncoderProcessor(processor, tokenizer).save_pretrained(shelf / "pair")
    return {name: str(shelf / name) for name in ("text", "vision", "pair")}


def draw(name: str, count: int, seed: int = 0) -> str:
    numbers, rows = create_random(seed), []
    for number in range(count):
        color, shape = pick(tuple(COLORS), numbers), pick(SHAPES, numbers)
        save_picture(draw_shape(shape, color, numbers, 16)[0], Path(name) / f"{number}.png")
        rows.append({"image_path": f"{name}/{number}.png", "caption": f"a {color} {shape}"})
    return write_rows(Path(f"{name}.jsonl"), rows)


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["eval_image_to_text_recall_at_1"] > 2 * finished.sample.baseline
    lines = read_rows(Path(f"runs/{TASK}/predictions.jsonl"))
    first = np.mean([line["rank"] == 1 for line in lines])
    assert first == pytest.approx(finished.metrics["predict_image_to_text_recall_at_1"])
    assert "Captions found" in Path(f"runs/{TASK}/report.html").read_text()


def plain_program(model: str, train: str, dev: str) -> Any:
    """What somebody who knows transformers would write for images with captions."""
    transformers.set_seed(7)
    network = transformers.AutoModel.from_pretrained(model)
    images = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def features(row: dict[str, Any]) -> dict[str, Any]:
        made = tokenizer(row["caption"], padding="max_length", truncation=True, max_length=8, return_tensors="pt")
        pixels = images(pillow.open(row["image_path"]).convert("RGB"), return_tensors="pt")["pixel_values"][0]
        names = ("input_ids", "attention_mask")
        return {"pixel_values": pixels, **{name: made[name][0] for name in names}}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=2, remove_unused_columns=False),
            train_dataset=[features(row) for row in read_rows(Path(train))],
            eval_dataset=[features(row) for row in read_rows(Path(dev))],
            data_collator=collate_pairs,
        )
        trainer.train()
        return trainer, trainer.evaluate()


def test_losses_are_those_of_a_plain_program(models: dict[str, str]) -> None:
    compare(models["pair"], draw("train", 24, 1), draw("dev", 16, 2))


@on_real_data
def test_losses_on_emoji_are_those_of_a_plain_program(models: dict[str, str]) -> None:
    rows = read_table("contrastive-image-text/twemoji-train", 40)
    compare(models["pair"], write_rows(Path("train.jsonl"), rows[:24]), write_rows(Path("dev.jsonl"), rows[24:]))


def compare(model: str, train: str, dev: str) -> None:
    words = ["--train_file", train, "--validation_file", dev, *SHORT, "--augment", "false"]
    finished = run(TASK, ["--model_name_or_path", model, *words])
    theirs, metrics = plain_program(model, train, dev)
    for entry in finished.trainer.state.log_history:
        for name in [name for name in entry if "image_to_text" in name or "text_to_image" in name]:
            del entry[name]
    assert_same_run(finished.trainer, theirs)
    assert finished.metrics["eval_loss"] == metrics["eval_loss"]


def test_a_dual_encoder_of_two_models(models: dict[str, str]) -> None:
    train = draw("train", 24)
    words = ["--vision_model_name_or_path", models["vision"], "--text_model_name_or_path", models["text"], *SHORT]
    words += ["--train_file", train, "--do_train", "--train_val_split", "0"]
    finished = run(TASK, [*words, "--freeze_vision_model", "--freeze_text_model"])
    state = finished.trainer.model.state_dict()
    pair = transformers.AutoModel.from_pretrained(models["pair"]).state_dict()
    for name, weight in pair.items():
        is_new = name.startswith(("visual_projection", "text_projection", "logit_scale"))
        assert is_new or torch.equal(state[name], weight), name
    with pytest.raises(ConfigError, match="a dual encoder of one model"):
        run(TASK, words[2:])
    again = run(TASK, ["--model_name_or_path", "out", "--test_file", train, "--do_predict", *SHORT])
    assert again.metrics["predict_samples"] == len(read_rows(Path("out/predictions.jsonl"))) == 24


def test_recall_counts_equal_captions_once() -> None:
    """By hand: three images; the first two have the same caption."""
    images = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    texts = np.array([[0.8, 0.6], [0.8, 0.6], [1.0, 0.1]])
    found = measure_recall(_Prediction(images, texts))
    # Image 0: its caption has a cosine of 0.8, the other 0.995. Image 2: 0.1 and, of the caption of the others, 0.6.
    assert found["image_to_text_recall_at_1"] == 0.0
    assert found["image_to_text_recall_at_5"] == 1.0
    # Caption 1 is right for images 0 and 1: each is found before image 2, and the other does not count.
    assert found["text_to_image_recall_at_1"] == pytest.approx(2 / 3)


class _Prediction:
    def __init__(self, images: Any, texts: Any) -> None:
        self.predictions, self.label_ids = (images, texts), np.array([[1], [1], [2]])


@pytest.mark.parametrize("caption", [None, " "], ids=["none", "blank"])
def test_a_missing_caption_is_named_or_skipped(
    models: dict[str, str], caption: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_rows(Path(draw("train", 8)))
    rows[2]["caption"] = caption
    words = ["--model_name_or_path", models["pair"], "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    words += ["--do_train", "--train_val_split", "0", "--num_train_epochs", "1"]
    with pytest.raises(DataError, match=r"rows.jsonl, row 3, column 'caption': there is no caption"):
        run(TASK, words)
    finished = run(TASK, [*words, "--skip_bad_rows"])
    assert finished.metrics["train_samples"] == 7
    assert "skipped rows.jsonl, row 3, column 'caption': there is no caption" in capsys.readouterr().err
