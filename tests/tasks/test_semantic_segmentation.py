"""Semantic segmentation: its sample, the same losses as a plain program of transformers, masks, wrong rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.shapes import COLORS, SHAPES, draw_shape
from tests.support.apis import guest
from tests.support.real_data import on_real_data, read_table
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

pillow = pytest.importorskip("PIL.Image")
TASK = "semantic-segmentation"
SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]
CONFIG: dict[str, Any] = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [3, 3],
    "strides": [2, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
    "classifier_dropout_prob": 0.0,
    "drop_path_rate": 0.0,
}


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small SegFormer and its image processor."""
    transformers.set_seed(3)
    transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(**CONFIG, num_labels=5)
    ).save_pretrained(shelf / "model")
    size = {"height": 16, "width": 16}
    transformers.SegformerImageProcessorPil(size=size).save_pretrained(shelf / "model")
    return str(shelf / "model")


def draw(name: str, count: int, seed: int = 0, *, palette: bool = False) -> list[dict[str, Any]]:
    """Pictures of 24 x 20 pixels, whose masks have the number of a colour."""
    numbers, rows = random.Random(seed), []
    Path(name).mkdir()
    for number in range(count):
        color = numbers.choice(list(COLORS))
        picture, mask = draw_shape(numbers.choice(SHAPES), color, numbers, 24)
        label = pillow.fromarray(np.where(mask, 1 + list(COLORS).index(color), 0).astype(np.uint8)[:20])
        if palette:
            label.putpalette(list(range(30, 0, -1)))
        pillow.fromarray(picture[:20]).save(f"{name}/{number}.png")
        label.save(f"{name}/{number}_mask.png")
        rows.append({"image": f"{name}/{number}.png", "label": f"{name}/{number}_mask.png"})
    return rows


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["eval_mean_iou"] > 0.6 > finished.sample.baseline
    assert {"eval_iou_red", "eval_accuracy_ground", "eval_overall_accuracy"} <= finished.metrics.keys()
    home = Path("runs") / TASK
    both = pixels = 0
    for line in read_rows(home / "predictions.jsonl"):
        found = np.asarray(pillow.open(home / line["mask"]))
        truth = np.asarray(pillow.open(home / "data/test/masks" / Path(line["image"]).name))
        both, pixels = both + (found == truth).sum(), pixels + truth.size
    assert both / pixels == pytest.approx(finished.metrics["predict_overall_accuracy"])
    assert (home / "report.html").read_text().count("data:image/png;base64,") == 12


def plain_program(model: str, train: list[Any], dev: list[Any]) -> Any:
    """What somebody who knows transformers would write for images with masks."""
    transformers.set_seed(7)
    network = transformers.AutoModelForSemanticSegmentation.from_pretrained(model)
    processor = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")

    def features(row: dict[str, Any]) -> dict[str, Any]:
        image, mask = pillow.open(row["image"]), np.asarray(pillow.open(row["label"]))
        made = processor(image.convert("RGB"), segmentation_maps=mask, return_tensors="pt")
        return {name: value[0] for name, value in made.items()}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=2),
            train_dataset=[features(row) for row in train],
            eval_dataset=[features(row) for row in dev],
        )
        trainer.train()
        return trainer, trainer.evaluate()


@pytest.mark.parametrize("palette", [False, True], ids=["grey", "palette"])
def test_losses_are_those_of_a_plain_program(model: str, palette: bool) -> None:
    compare(model, draw("train", 24, 1, palette=palette), draw("dev", 8, 2, palette=palette))


@on_real_data
def test_losses_on_photographs_are_those_of_a_plain_program(model: str) -> None:
    nuclei = "semantic-segmentation/nuclei-train"
    compare(model, read_table(nuclei, 32)[:24], read_table(nuclei, 32)[24:])


def compare(model: str, train: list[Any], dev: list[Any]) -> None:
    files = ["--train_file", write_rows(Path("train.jsonl"), train)]
    files += ["--validation_file", write_rows(Path("dev.jsonl"), dev)]
    finished = run(TASK, ["--model_name_or_path", model, *files, *SHORT, "--augment", "false"])
    theirs, metrics = plain_program(model, train, dev)
    for entry in finished.trainer.state.log_history:
        for name in [name for name in entry if "iou" in name or "accuracy" in name]:
            del entry[name]
    assert_same_run(finished.trainer, theirs)
    assert finished.metrics["eval_loss"] == metrics["eval_loss"]


def test_image_and_mask_are_changed_alike(model: str) -> None:
    """A mask that is the red of the image stays so, whatever part of both is taken."""
    numbers = np.random.RandomState(0)
    for number in range(8):
        mask = numbers.randint(0, 2, (4, 4)).repeat(8, 0).repeat(8, 1).astype(np.uint8)
        pillow.fromarray(np.stack([mask * 255] * 3, axis=-1)).save(f"{number}.png")
        pillow.fromarray(mask).save(f"{number}_mask.png")
    rows = [{"image": f"{n}.png", "label": f"{n}_mask.png"} for n in range(8)]
    words = ["--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train", "--train_val_split", "0"]
    finished = run(TASK, ["--model_name_or_path", model, *words, *SHORT, "--num_train_epochs", "1"])
    random.seed(1)
    seen = set()
    for _ in range(5):
        for row in finished.trainer.train_dataset:
            white = row["pixel_values"][0] > 0
            seen.add(row["labels"].numpy().tobytes())
            # At the borders the image is interpolated and the mask is not.
            assert (white == (row["labels"] == 1)).float().mean() > 0.8
    assert len(seen) > 30


def test_labels_count_from_one_with_do_reduce_labels(model: str) -> None:
    rows = draw("train", 8)
    Path("labels.json").write_text(json.dumps({str(n): name for n, name in enumerate(COLORS)}))
    words = ["--train_file", write_rows(Path("rows.jsonl"), rows), "--test_file", "rows.jsonl", *SHORT]
    words += ["--do_reduce_labels", "--id2label", "labels.json", "--ignore_mismatched_sizes", "--train_val_split", "0"]
    finished = run(TASK, ["--model_name_or_path", model, *words])
    labels = finished.trainer.train_dataset[0]["labels"]
    original = np.asarray(pillow.open(rows[0]["label"]))
    assert set(labels.unique().tolist()) == {255, int(original.max()) - 1}
    config: Any = finished.trainer.model.config
    assert list(config.id2label.values()) == list(COLORS)
    written = np.asarray(pillow.open("out/masks/train/0.png"))
    assert written.shape == (20, 24) and written.min() >= 1


def test_a_folder_of_images_and_masks(model: str) -> None:
    for number, row in enumerate(draw("all", 8)):
        for name, kind in (("image", "images"), ("label", "masks")):
            Path("folder", kind).mkdir(parents=True, exist_ok=True)
            Path(row[name]).rename(Path("folder", kind, f"{number}.png"))
    words = ["--model_name_or_path", model, "--train_dir", "folder", *SHORT, "--train_val_split", "0.25"]
    finished = run(TASK, words)
    assert (finished.metrics["train_samples"], finished.metrics["eval_samples"]) == (6, 2)
    Path("folder/masks/3.png").unlink()
    with pytest.raises(DataError, match=r"folder/images/3.png has no mask"):
        run(TASK, words)
    Path("folder/images").rename("folder/cats")
    with pytest.raises(DataError, match=r"(?s)folder holds no images with masks.*folder/images"):
        run(TASK, words)


def write_mask(values: Any, mode: str | None = None) -> None:
    image = pillow.fromarray(np.asarray(values, dtype=np.uint8))
    (image if mode is None else image.convert(mode)).save("train/3_mask.png")


WRONG = {
    "another size": (lambda: write_mask(np.zeros((5, 7))), "3_mask.png is 7 x 5 pixels, its image 24 x 20"),
    "no label": (
        lambda: write_mask(np.full((20, 24), 9)),
        "3_mask.png has pixels of the value 9, beyond the 5 labels(?s:.*)--id2label",
    ),
    "colours": (
        lambda: write_mask(np.random.RandomState(0).randint(0, 9, (20, 24, 3))),
        "3_mask.png holds colours, not numbers of classes",
    ),
    "a jpeg": (
        lambda: pillow.fromarray(np.zeros((20, 24), np.uint8)).save("train/3_mask.png", format="JPEG"),
        "3_mask.png is a jpeg",
    ),
    "no mask": (lambda: Path("train/3_mask.png").unlink(), "3_mask.png: there is no such file"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_masks_are_named_or_skipped(model: str, mistake: str) -> None:
    rows = draw("train", 8)
    Path("labels.json").write_text(json.dumps(["ground", *COLORS]))
    damage, message = WRONG[mistake]
    damage()
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train"]
    words += ["--id2label", "labels.json", "--train_val_split", "0", *SHORT, "--num_train_epochs", "1"]
    with pytest.raises(DataError, match=f"rows.jsonl, row 4(, column 'label')?: .*{message}"):
        run(TASK, words)
    finished = run(TASK, [*words, "--skip_bad_rows"])
    assert list(finished.trainer.skipped_rows) == [3]


def test_evaluation_rows_without_a_mask_are_skipped(model: str) -> None:
    rows = draw("train", 8)
    train = write_rows(Path("rows.jsonl"), rows)
    rows[1]["label"] = None
    words = [
        "--model_name_or_path",
        model,
        "--train_file",
        train,
        "--skip_bad_rows",
        *SHORT,
        "--num_train_epochs",
        "1",
    ]
    finished = run(TASK, [*words, "--validation_file", write_rows(Path("dev.jsonl"), rows)])
    assert finished.metrics["eval_samples"] == 7


@pytest.mark.parametrize("names", [[], ["ground", "thing"]], ids=["labels from the masks", "labels named"])
def test_masks_of_black_and_white(model: str, names: list[str]) -> None:
    """255 is no label: without this error, a model of a single label would seem to be perfect."""
    rows = draw("train", 4)
    for row in rows:
        pillow.fromarray(np.asarray(pillow.open(row["label"])) > 0).convert("L").save(row["label"])
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train", *SHORT]
    if names:
        Path("labels.json").write_text(json.dumps(names))
        words += ["--id2label", "labels.json"]
    with pytest.raises(DataError, match=r"(?s)hold nothing but 0 and 255.*store 1 in place of 255"):
        run(TASK, [*words, "--train_val_split", "0"])


def test_a_transform_gets_image_and_mask(model: str) -> None:
    """As one of `torchvision.transforms.v2`: called with both, it changes them alike."""
    from ostinato.tasks.semantic_segmentation import SemanticSegmentation

    class Mirror:
        def __call__(self, image: Any, mask: torch.Tensor) -> tuple[Any, torch.Tensor]:
            assert mask.shape == image.size[::-1]
            return image.transpose(pillow.Transpose.FLIP_LEFT_RIGHT), mask.flip(-1)

    class Mirrored(SemanticSegmentation):
        transform = Mirror()

    rows = draw("train", 8)
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train", *SHORT]
    finished = run(Mirrored, [*words, "--train_val_split", "0", "--num_train_epochs", "1"])
    processor = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")
    image, mask = pillow.open(rows[0]["image"]), np.asarray(pillow.open(rows[0]["label"]))
    mirrored = image.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
    expected = processor(mirrored, segmentation_maps=mask[:, ::-1], return_tensors="pt")
    row = finished.trainer.train_dataset[0]
    assert torch.equal(row["pixel_values"], expected["pixel_values"][0])
    assert torch.equal(row["labels"], expected["labels"][0])


def test_labels_that_are_no_labels(model: str) -> None:
    rows = draw("train", 8)
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    Path("labels.json").write_text('{"1": "a", "2": "b"}')
    with pytest.raises(ConfigError, match=r"--id2label labels.json does not name the labels"):
        run(TASK, [*words, "--id2label", "labels.json"])
    with pytest.raises(ConfigError, match=r"--id2label nowhere.json cannot be read"):
        run(TASK, [*words, "--id2label", "nowhere.json"])


def test_pixels_without_a_label_do_not_count() -> None:
    from ostinato.tasks.media.masks import IGNORED, reduce_labels

    assert torch.tensor(reduce_labels(np.array([[0, 3, IGNORED]]))).tolist() == [[IGNORED, 2, IGNORED]]
