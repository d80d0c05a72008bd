"""Image classification: its sample, the same losses as a plain program of transformers, augmentation, wrong files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.media.gallery import Picture, write_gallery
from ostinato.tasks.samples.shapes import COLORS, SHAPES, draw_shape
from tests.support.apis import guest
from tests.support.real_data import on_real_data, write_clothes
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

pillow = pytest.importorskip("PIL.Image")
TASK = "image-classification"
SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]


def draw(directory: Path, count: int, seed: int = 0, shapes: Sequence[str] = SHAPES) -> Path:
    """A folder for each shape, with pictures of 20 pixels."""
    numbers = random.Random(seed)
    for number in range(count):
        shape = shapes[number % len(shapes)]
        (directory / shape).mkdir(parents=True, exist_ok=True)
        picture, _ = draw_shape(shape, numbers.choice(list(COLORS)), numbers, 20)
        pillow.fromarray(picture).save(directory / shape / f"{number:03}.png")
    return directory


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small ViT and its image processor."""
    transformers.set_seed(3)
    config = transformers.ViTConfig(
        image_size=16,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=4,
        id2label=dict(enumerate(SHAPES)),
        label2id={name: number for number, name in enumerate(SHAPES)},
    )
    transformers.ViTForImageClassification(config).save_pretrained(shelf / "model")
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["eval_accuracy"] > finished.sample.baseline + 0.2
    home = Path("runs") / TASK
    predicted = read_rows(home / "predictions.jsonl")
    assert np.mean([one["prediction"] == one["label"] for one in predicted]) == finished.metrics["predict_accuracy"]
    for one in predicted:
        assert (home / "data/test" / one["image"]).is_file()
        assert one["probabilities"][one["prediction"]] == one["score"]
        assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    page = (home / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 24
    assert "Predictions" in page


def plain_program(model: str, train: Path, dev: Path) -> Any:
    """What somebody who knows transformers would write for images in folders."""
    transformers.set_seed(7)
    network = transformers.AutoModelForImageClassification.from_pretrained(model)
    processor = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")

    def features(directory: Path) -> list[dict[str, Any]]:
        return [
            {
                "pixel_values": processor(pillow.open(path).convert("RGB"), return_tensors="pt")["pixel_values"][0],
                "labels": label,
            }
            for label, folder in enumerate(sorted(directory.iterdir()))
            for path in sorted(folder.iterdir())
        ]

    def metric(prediction: Any) -> dict[str, float]:
        from sklearn.metrics import f1_score

        chosen = prediction.predictions.argmax(-1)
        accuracy = float((chosen == prediction.label_ids).mean())
        return {"accuracy": accuracy, "f1_macro": f1_score(prediction.label_ids, chosen, average="macro")}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=2),
            train_dataset=features(train),
            eval_dataset=features(dev),
            compute_metrics=metric,
        )
        trainer.train()
        return trainer, trainer.evaluate()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, workers: str) -> None:
    compare(model, draw(Path("train"), 32, 1), draw(Path("dev"), 16, 2), "--dataloader_num_workers", workers)


@on_real_data
def test_losses_on_photographs_are_those_of_a_plain_program(model: str) -> None:
    kinds = ("Bag", "Boot", "Dress", "Trouser")
    compare(model, write_clothes(Path("train"), 80, kinds), write_clothes(Path("dev"), 40, kinds, "t10k"))


def compare(model: str, train: Path, dev: Path, *more: str) -> None:
    words = ["--model_name_or_path", model, "--train_dir", str(train), "--validation_dir", str(dev), *SHORT]
    finished = run(TASK, [*words, "--augment", "false", *more])
    theirs, metrics = plain_program(model, train, dev)
    assert_same_run(finished.trainer, theirs)
    for name in ("eval_loss", "eval_accuracy"):
        assert finished.metrics[name] == metrics[name]
    assert finished.metrics["eval_f1_macro"] == pytest.approx(metrics["eval_f1_macro"], abs=1e-12)


def weights_of(finished: Any) -> list[Any]:
    return [weight.clone() for weight in finished.trainer.model.state_dict().values()]


def test_augmentation_is_the_same_for_any_number_of_workers(model: str) -> None:
    train = draw(Path("train"), 24)
    words = ["--model_name_or_path", model, "--train_dir", str(train), "--do_train", *SHORT]
    words += ["--color_jitter", "0.3", "--random_erasing", "0.5"]
    alone = weights_of(run(TASK, words))
    together = weights_of(run(TASK, [*words, "--dataloader_num_workers", "2", "--output_dir", "two"]))
    plain = weights_of(run(TASK, [*words, "--augment", "false", "--output_dir", "three"]))
    assert all(map(torch.equal, alone, together))
    assert not all(map(torch.equal, alone, plain))


def test_a_table_of_paths_and_a_folder_give_the_same(model: str) -> None:
    train = draw(Path("pictures/train"), 24)
    files = sorted(train.glob("*/*.png"))
    rows = [{"image_path": str(path.relative_to("pictures")), "label": path.parent.name} for path in files]
    table = write_rows(Path("pictures/rows.jsonl"), rows)
    common = ["--model_name_or_path", model, "--do_train", *SHORT, "--train_val_split", "0"]
    folder = weights_of(run(TASK, [*common, "--train_dir", str(train)]))
    listed = weights_of(run(TASK, [*common, "--train_file", table, "--output_dir", "listed"]))
    dataset = weights_of(run(TASK, [*common, "--dataset_name", "pictures", "--output_dir", "dataset"]))
    assert all(map(torch.equal, folder, listed)) and all(map(torch.equal, folder, dataset))


def test_a_share_of_every_label_is_held_back(model: str) -> None:
    train = draw(Path("train"), 40)
    words = ["--model_name_or_path", model, "--train_dir", str(train), *SHORT, "--max_steps", "1"]
    finished = run(TASK, [*words, "--train_val_split", "0.2"])
    assert (finished.metrics["train_samples"], finished.metrics["eval_samples"]) == (32, 8)
    kept, held = (
        {row["image"]: row["label"] for row in rows.split.rows}
        for rows in (finished.trainer.train_dataset, finished.trainer.eval_dataset)
    )
    assert not kept.keys() & held.keys() and len(kept) + len(held) == 40
    assert sorted(held.values()) == sorted([*SHAPES, *SHAPES])


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


WRONG = {
    "cut off": (cut_off, r"train, row 10: cross/005.png cannot be decoded; it is cut off"),
    "no bytes": (lambda path: path.write_bytes(b""), r"train, row 10, column 'image': cross/005.png is empty"),
    "a text": (
        lambda path: path.write_text("I am no picture"),
        r"train, row 10: cross/005.png is not an image\n  why: it is a text that begins with 'I am no",
    ),
    "other bytes": (
        lambda path: path.write_bytes(bytes(range(128, 250))),
        r"cross/005.png is not an image\n  why: it begins with the bytes 80 81",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_an_unreadable_file_is_named_or_skipped(model: str, mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage, message = WRONG[mistake]
    train, dev = draw(Path("train"), 32), draw(Path("dev"), 8)
    damage(train / "cross/005.png")
    words = ["--model_name_or_path", model, "--train_dir", str(train), *SHORT, "--num_train_epochs", "1"]
    with pytest.raises(DataError, match=message):
        run(TASK, [*words, "--do_train", "--train_val_split", "0"])
    damage(dev / "circle/000.png")
    finished = run(TASK, [*words, "--validation_dir", str(dev), "--test_dir", str(dev), "--skip_bad_rows"])
    assert list(finished.trainer.skipped_rows) == [8 + 1]
    assert (finished.metrics["eval_samples"], finished.metrics["predict_samples"]) == (7, 7)
    told = capsys.readouterr().err
    assert "skipped dev, row 1: circle/000.png" in told
    assert len(read_rows(Path("out/predictions.jsonl"))) == 7


WRONG_ROWS = {
    "one file of a label": (
        lambda: (draw(Path("train"), 8), draw(Path("train"), 1, shapes=["star"])),
        [],
        r"row 7, column 'label': the label 'star' has one file only, star/000.png",
    ),
    "an empty folder": (
        lambda: (draw(Path("train"), 8), Path("train/star").mkdir()),
        [],
        "train/star holds no image file",
    ),
    "files beside folders": (
        lambda: (draw(Path("train"), 8), Path("train/circle/000.png").rename("train/x.png")),
        [],
        "train holds files and folders of files",
    ),
    "no label": (
        lambda: (draw(Path("all"), 16), Path("all/circle").rename("train")),
        [],
        "train has no column 'label'",
    ),
    "a label that training has not": (
        lambda: (draw(Path("train"), 8), draw(Path("dev"), 2, shapes=["sqare"])),
        ["--validation_dir", "dev"],
        "dev, row 1, column 'label': there is no label 'sqare'(?s:.*)did you mean 'square'",
    ),
    "folders of splits": (
        lambda: (draw(Path("train/train"), 8), draw(Path("train/val"), 8)),
        [],
        "train holds the folders train, val(?s:.*)--dataset_name train",
    ),
    "no images": (lambda: Path("train").mkdir(), [], "train holds no files to read(?s:.*)it has nothing"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_errors_with_a_fix(model: str, mistake: str) -> None:
    prepare, more, message = WRONG_ROWS[mistake]
    prepare()
    with pytest.raises(DataError, match=message) as caught:
        run(TASK, ["--model_name_or_path", model, "--train_dir", "train", *SHORT, *more])
    assert "\n  fix: " in str(caught.value)


def test_labels_that_are_missing_or_single_are_skipped(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(draw(Path("train"), 24).glob("*/*.png"))
    labels = [
        None if number == 2 else "star" if number == 9 else path.parent.name for number, path in enumerate(files)
    ]
    rows = [{"image": str(path), "labels": label} for path, label in zip(files, labels, strict=True)]
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    with pytest.raises(DataError, match=r"rows.jsonl, row 10, column 'labels': the label 'star' has one file only"):
        run(TASK, words)
    capsys.readouterr()
    finished = run(TASK, [*words, "--skip_bad_rows"])
    assert finished.metrics["train_samples"] + finished.metrics["eval_samples"] == 22
    told = capsys.readouterr().err
    assert "skipped rows.jsonl, row 10, column 'labels': the label 'star'" in told
    assert "skipped rows.jsonl, row 3, column 'labels': there is no label" in told
    assert {row["labels"] for row in finished.trainer.eval_dataset.split.rows} == set(SHAPES)


def test_paths_that_lead_nowhere(model: str) -> None:
    draw(Path("train"), 8)
    rows = [{"image": "train/circle/000.png", "label": "a"}, {"image": "train/circle/00.png", "label": "b"}]
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    words += ["--train_val_split", "0"]
    with pytest.raises(DataError, match=r"rows.jsonl, row 2(?s:.*)no such file(?s:.*)did you mean 00.\.png"):
        run(TASK, words)
    with pytest.raises(ConfigError, match=r"--train_dir train and --train_file rows.jsonl"):
        run(TASK, [*words, "--train_dir", "train"])
    with pytest.raises(ConfigError, match=r"--train_val_split 15(?s:.*)--train_val_split 0.15"):
        run(TASK, [*words, "--train_val_split", "15"])


def test_decoded_files_are_decoded_once(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato.tasks.media import image_recipe

    decoded: list[str] = []
    decode = image_recipe.decode_image
    monkeypatch.setattr(
        image_recipe, "decode_image", lambda file, mode: decoded.append(file.name) or decode(file, mode)
    )
    train = draw(Path("train"), 24)
    words = ["--model_name_or_path", model, "--train_dir", str(train), "--do_train", *SHORT, "--train_val_split", "0"]
    plain = weights_of(run(TASK, words))
    assert len(decoded) == 48  # two epochs
    decoded.clear()
    words += ["--decoded_cache_dir", "decoded"]
    cached = weights_of(run(TASK, words))
    assert len(decoded) == len(set(decoded)) == 24
    again = weights_of(run(TASK, words))
    assert len(decoded) == 24
    assert all(map(torch.equal, plain, cached)) and all(map(torch.equal, plain, again))


def test_a_transform_takes_the_place_of_the_augmentation(model: str) -> None:
    """As one of `torchvision.transforms.v2`: a function of an image of Pillow."""
    from ostinato.tasks.image_classification import ImageClassification

    seen: list[Any] = []

    def mirror(image: Any) -> Any:
        seen.append(image.size)
        return image.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)

    class Mirrored(ImageClassification):
        transform = staticmethod(mirror)

    words = ["--model_name_or_path", model, "--train_dir", str(draw(Path("train"), 16)), "--do_train", *SHORT]
    finished = run(Mirrored, [*words, "--train_val_split", "0", "--num_train_epochs", "1"])
    assert seen == [(20, 20)] * 16
    row = finished.trainer.train_dataset[0]["pixel_values"]
    processor = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")
    picture = pillow.open(sorted(Path("train/circle").iterdir())[0])
    expected = processor(mirror(picture), return_tensors="pt")["pixel_values"][0]
    assert torch.equal(row, expected)


def test_pictures_of_an_earlier_run_are_removed(model: str) -> None:
    write_gallery(Path("out"), "predictions", "Predictions", [Picture(pillow.new("RGB", (8, 8)), "of another model")])
    words = ["--model_name_or_path", model, "--train_dir", str(draw(Path("train"), 8)), "--do_train", *SHORT]
    run(TASK, [*words, "--max_steps", "1", "--train_val_split", "0"])
    assert "of another model" not in Path("out/report.html").read_text()


def test_predictions_of_images_without_labels(model: str) -> None:
    draw(Path("new"), 8, shapes=["circle"])
    Path("new/circle").rename("flat")
    finished = run(TASK, ["--model_name_or_path", model, "--test_dir", "flat", "--do_predict", *SHORT])
    lines = read_rows(Path("out/predictions.jsonl"))
    assert [line["image"] for line in lines] == [f"{n:03}.png" for n in range(8)]
    assert all("label" not in line and line["prediction"] in SHAPES for line in lines)
    assert "predict_accuracy" not in finished.metrics
    gallery = json.loads(Path("out/gallery/predictions.json").read_text())
    assert len(gallery["pictures"]) == 8 and not any(one["mark"] for one in gallery["pictures"])
