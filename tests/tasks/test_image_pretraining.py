"""Pretraining on images: the samples, the same losses as plain programs of transformers, what is hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato import ConfigError
from ostinato.tasks import run
from ostinato.tasks.image_pretraining_mim import MaskedImageModeling
from ostinato.tasks.samples.shapes import write_unlabelled_shapes
from tests.support.apis import guest
from tests.support.real_data import CLOTHES, on_real_data, write_clothes
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows

pillow = pytest.importorskip("PIL.Image")
SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]
SIZES: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
DECODER: dict[str, Any] = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}


@pytest.fixture(scope="module")
def models(shelf: Path) -> dict[str, str]:
    """Directories with a small model and its image processor."""
    transformers.set_seed(3)
    for name, model in (
        ("mae", transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**SIZES, **DECODER))),
        ("mim", transformers.ViTForMaskedImageModeling(transformers.ViTConfig(**SIZES, encoder_stride=4))),
    ):
        model.save_pretrained(shelf / name)
        transformers.ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(shelf / name)
    return {name: str(shelf / name) for name in ("mae", "mim")}


@pytest.mark.parametrize("kind", ["mae", "mim"])
def test_the_sample_is_learned(kind: str) -> None:
    finished = run(f"image-pretraining-{kind}", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["eval_loss"] < 0.9 * finished.sample.baseline
    home = Path(f"runs/image-pretraining-{kind}")
    losses = [line["loss"] for line in read_rows(home / "predictions.jsonl")]
    assert np.mean(losses) == pytest.approx(finished.metrics["predict_loss"], rel=1e-3)
    assert (home / "report.html").read_text().count("data:image/png;base64,") == 8


def test_a_new_autoencoder_knows_where_its_patches_are(models: dict[str, str]) -> None:
    words = ["--train_dir", str(write_unlabelled_shapes(Path("data"), {"train": 8})[0]["train"]), "--do_train", *SHORT]
    words += ["--train_val_split", "0", "--max_steps", "1"]
    sizes = ",".join(f"{name}={value}" for name, value in {**SIZES, **DECODER}.items())
    new = run("image-pretraining-mae", [*words, "--model_type", "vit_mae", "--config_overrides", sizes]).trainer.model
    for table in (new.vit.embeddings.position_embeddings[0], new.decoder.decoder_pos_embed[0]):
        assert not table[0].any()  # no patch: the class
        columns, rows = table[1:].reshape(4, 4, 2, 8).unbind(dim=2)
        assert torch.equal(columns, columns[:1].expand_as(columns))
        assert torch.equal(rows, rows[:, :1].expand_as(rows))
        nearness = table[1:] @ table[1:].T
        assert (nearness.argmax(dim=1) == torch.arange(16)).all()
        assert nearness[0, 1] > nearness[0, 2] and nearness[0, 4] > nearness[0, 8]
    known = run("image-pretraining-mae", [*words, "--model_name_or_path", models["mae"]]).trainer.model
    before = transformers.ViTMAEForPreTraining.from_pretrained(models["mae"])
    torch.testing.assert_close(known.decoder.decoder_pos_embed, before.decoder.decoder_pos_embed, atol=2e-3, rtol=0)


def hide_by_number(self: Any, row: Any, purpose: str) -> np.ndarray:
    """What is hidden of an image, for both sides of a comparison."""
    number = int(Path(self.find_file(row)).stem)
    return np.random.RandomState(number).rand(4, 4) < 0.5


def plain_program(kind: str, model: str, folder: Path) -> Any:
    """What somebody who knows transformers would write."""
    transformers.set_seed(7)
    network = getattr(
        transformers, {"mae": "ViTMAEForPreTraining", "mim": "AutoModelForMaskedImageModeling"}[kind]
    ).from_pretrained(model)
    processor = transformers.AutoImageProcessor.from_pretrained(model, backend="pil")
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.png")):
        image = pillow.open(path).convert("RGB")
        rows.append({"pixel_values": processor(image, return_tensors="pt")["pixel_values"][0]})
        if kind == "mim":
            hidden = np.random.RandomState(int(path.stem)).rand(4, 4) < 0.5
            rows[-1]["bool_masked_pos"] = torch.from_numpy(hidden.reshape(-1))
    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network, args=plain_arguments(1e-3, num_train_epochs=2), train_dataset=rows
        )
        trainer.train()
        return trainer


@pytest.mark.parametrize("kind", ["mae", "mim"])
def test_losses_are_those_of_a_plain_program(
    kind: str, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskedImageModeling, "draw_mask", hide_by_number)
    compare(kind, models[kind], write_unlabelled_shapes(Path("data"), {"train": 24})[0]["train"])


@on_real_data
@pytest.mark.parametrize("kind", ["mae", "mim"])
def test_losses_on_photographs_are_those_of_a_plain_program(
    kind: str, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskedImageModeling, "draw_mask", hide_by_number)
    compare(kind, models[kind], write_clothes(Path("train"), 40, CLOTHES))


def compare(kind: str, model: str, folder: Path) -> None:
    words = ["--model_name_or_path", model, "--train_dir", str(folder), "--do_train", "--train_val_split", "0"]
    words += ["--norm_pix_loss", "false"] if kind == "mae" else ["--mask_patch_size", "4"]
    finished = run(f"image-pretraining-{kind}", [*words, *SHORT, "--augment", "false"])
    assert_same_run(finished.trainer, plain_program(kind, model, folder))


@pytest.mark.parametrize("kind", ["mae", "mim"])
def test_every_evaluation_hides_the_same(kind: str, models: dict[str, str]) -> None:
    folders, _ = write_unlabelled_shapes(Path("data"), {"train": 8, "validation": 8})
    words = ["--model_name_or_path", models[kind], "--train_dir", str(folders["train"]), *SHORT]
    words += ["--validation_dir", str(folders["validation"]), "--eval_strategy", "epoch", "--mask_ratio", "0.5"]
    words += ["--mask_patch_size", "4"] if kind == "mim" else []
    finished = run(f"image-pretraining-{kind}", [*words, "--learning_rate", "0"])
    losses = {entry["eval_loss"] for entry in finished.trainer.state.log_history if "eval_loss" in entry}
    assert len(losses) == 1
    if kind == "mim":
        rows: Any = finished.trainer.eval_dataset
        assert [int(row["bool_masked_pos"].sum()) for row in rows] == [8] * 8
        assert len({row["bool_masked_pos"].numpy().tobytes() for row in rows}) == 8


def test_the_learning_rate_is_scaled_by_the_batch(models: dict[str, str]) -> None:
    folder = write_unlabelled_shapes(Path("data"), {"train": 16})[0]["train"]
    words = ["--model_name_or_path", models["mae"], "--train_dir", str(folder), "--do_train", *SHORT]
    words += ["--base_learning_rate", "1.5e-4", "--gradient_accumulation_steps", "2", "--max_steps", "1"]
    finished = run("mae", words)
    assert finished.trainer.args.learning_rate == pytest.approx(1.5e-4 * 16 / 256)
    assert finished.trainer.state.log_history[0]["learning_rate"] == pytest.approx(1.5e-4 * 16 / 256)


def test_squares_that_do_not_fit(models: dict[str, str]) -> None:
    folder = write_unlabelled_shapes(Path("data"), {"train": 8})[0]["train"]
    words = ["--model_name_or_path", models["mim"], "--train_dir", str(folder), "--do_train", *SHORT]
    with pytest.raises(ConfigError, match=r"--mask_patch_size 32 does not fit(?s:.*)--mask_patch_size 4"):
        run("mim", words)
    with pytest.raises(ConfigError, match=r"--mask_ratio 75(?s:.*)between 0 and 1"):
        run("mim", [*words, "--mask_ratio", "75"])
