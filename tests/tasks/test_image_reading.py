"""Images as files have them: modes, orientation, transparency, 16 bits; rows with bytes; the pixels of processors."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers

from ostinato import DataError
from ostinato.report.html import render_page
from ostinato.report.pictures import render_galleries
from ostinato.tasks.media.folders import find_split_folders
from ostinato.tasks.media.gallery import Picture, write_gallery
from ostinato.tasks.media.image_augmentation import ImageAugmentation, apply_crop, draw_box
from ostinato.tasks.media.image_processors import Pixels, create_image_processor, set_size
from ostinato.tasks.media.images import IMAGE, decode_image
from ostinato.tasks.media.masks import decode_mask
from ostinato.tasks.media.media_arguments import MediaArguments
from ostinato.tasks.media.media_files import MediaFile
from ostinato.tasks.media.media_reader import MediaReader
from tests.support.html_pages import check_self_contained

pillow = pytest.importorskip("PIL.Image")

SIDE = 24


def draw(mode: str = "RGB") -> Any:
    """A picture whose left half is red and right half blue, the top lighter."""
    values = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
    values[:, : SIDE // 2, 0], values[:, SIDE // 2 :, 2] = 200, 200
    values[: SIDE // 2] += 40
    return pillow.fromarray(values).convert(mode)


def store(image: Any, ending: str, **options: Any) -> MediaFile:
    stream = io.BytesIO()
    image.save(stream, format=ending, **options)
    return MediaFile("x", None, stream.getvalue())


FILES = {
    "jpg": lambda: store(draw(), "JPEG", quality=95),
    "png": lambda: store(draw(), "PNG"),
    "webp": lambda: store(draw(), "WEBP", lossless=True),
    "bmp": lambda: store(draw(), "BMP"),
    "tiff": lambda: store(draw(), "TIFF"),
    "palette": lambda: store(draw().quantize(8), "PNG"),
    "gif": lambda: store(draw().quantize(8), "GIF"),
    "cmyk": lambda: store(draw("CMYK"), "JPEG", quality=95),
    "opaque": lambda: store(draw("RGBA"), "PNG"),
    "animated": lambda: store(draw(), "GIF", save_all=True, append_images=[draw().rotate(90)]),
    "turned by exif": lambda: store(draw().rotate(-90), "JPEG", quality=95, exif=struct.pack(
        ">6s2sHIHHHIHHI", b"Exif\0\0", b"MM", 42, 8, 1, 0x0112, 3, 1, 8, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_file_is_the_same_picture(kind: str) -> None:
    image = decode_image(FILES[kind]())
    assert (image.mode, image.size) == ("RGB", (SIDE, SIDE))
    difference = np.abs(np.asarray(image).astype(int) - np.asarray(draw()).astype(int))
    assert difference.mean() < 12, difference.mean()


def test_grey_images_of_any_depth_are_the_same() -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = np.asarray(decode_image(store(pillow.fromarray(grey), "PNG"), "L"))
    assert (expected == grey).all()
    deep = pillow.fromarray(grey.astype(np.uint16) * 257)
    assert (np.asarray(decode_image(store(deep, "PNG"), "L")) == grey).all()
    assert (np.asarray(decode_image(store(deep, "TIFF")))[..., 1] == grey).all()
    fractions = pillow.fromarray((grey / 255).astype(np.float32))
    assert (np.asarray(decode_image(store(fractions, "TIFF"), "L")) == grey).all()
    bits = pillow.fromarray(grey > 127)
    assert set(np.unique(np.asarray(decode_image(store(bits, "PNG"))))) == {0, 255}


def test_what_is_transparent_is_white() -> None:
    image = draw("RGBA")
    image.putalpha(pillow.fromarray(np.where(np.arange(SIDE) < 6, 0, 255).astype(np.uint8)[None].repeat(SIDE, 0)))
    found = np.asarray(decode_image(store(image, "PNG")))
    assert (found[:, :6] == 255).all() and (found[:, 6:] == np.asarray(draw())[:, 6:]).all()
    palette = draw().quantize(4)
    palette.info["transparency"] = palette.getpixel((0, 0))
    found = np.asarray(decode_image(store(palette, "PNG", transparency=palette.getpixel((0, 0)))))
    assert (found[0, 0] == 255).all() and not (found[0, -1] == 255).all()


def test_a_mask_has_numbers_not_colours() -> None:
    numbers = np.array([[0, 1], [7, 255]], dtype=np.uint8)
    grey = pillow.fromarray(numbers)
    palette = grey.copy()
    palette.putpalette([255 - n // 3 for n in range(768)])
    deep = pillow.fromarray(numbers.astype(np.uint16) * 100)
    same = pillow.merge("RGB", [grey] * 3)
    for image, factor in ((grey, 1), (palette, 1), (deep, 100), (same, 1)):
        assert (decode_mask(store(image, "PNG")) == numbers.astype(int) * factor).all()
    with pytest.raises(DataError, match="colours, not numbers"):
        decode_mask(store(draw(), "PNG"))


def test_columns_of_datasets_are_read_without_its_decoder() -> None:
    pictures = [draw(), draw().rotate(90)]
    rows = datasets.Dataset.from_dict({"photo": pictures, "label": ["a", "b"]}, features=datasets.Features(
        {"photo": datasets.Image(), "label": datasets.Value("string")}))  # fmt: skip
    rows.save_to_disk("saved")
    rows.to_parquet("rows.parquet")
    for source in ("saved", "rows.parquet"):
        split = MediaReader(IMAGE).read_file(source, "train")
        value = split.rows[1]["photo"]
        assert isinstance(value, dict)
        file = MediaFile.from_value(value, split.directory)
        assert file is not None
        assert (np.asarray(decode_image(file)) == np.asarray(pictures[1])).all()


def test_folders_of_splits() -> None:
    for name in ("train", "val", "test", "notes"):
        Path("data", name).mkdir(parents=True)
    found = find_split_folders(Path("data"))
    assert {purpose: path.name for purpose, path in found.items()} == {
        "train": "train", "validation": "val", "test": "test"
    }  # fmt: skip
    Path("data/train").rename("data/cats")
    assert find_split_folders(Path("data")) == {"train": Path("data")}


def test_hidden_files_and_folders_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (
        "cats/a.PNG",
        "cats/.hidden/b.png",
        "dogs/deep/er/c.Jpeg",
        "dogs/.d.png",
        ".trash/e.png",
        "dogs/f.db",
    ):
        path = Path("data", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store(draw(), "PNG").data or b"")
    split = MediaReader(IMAGE).read_file("data", "train")
    assert split.rows.to_dict() == {"image": ["cats/a.PNG", "dogs/deep/er/c.Jpeg"], "label": ["cats", "dogs"]}
    assert "left out 1 file of other kinds: f.db" in capsys.readouterr().err


def test_a_directory_of_tables_is_a_dataset() -> None:
    """Such as the parquet files of a downloaded dataset, under the names that `datasets` knows."""
    rows = datasets.Dataset.from_dict({"image": [store(draw(), "PNG").data] * 3, "label": [0, 1, 1]})
    for name in ("train", "validation"):
        rows.to_parquet(f"home/data/{name}-00000-of-00001.parquet")
    arguments = MediaArguments(dataset_name="home")
    reader = MediaReader(IMAGE)
    assert reader.list_splits(arguments, ["train", "validation", "test"]) == ["train", "validation"]
    split = reader.read_dataset(arguments, ["validation"])["validation"]
    file = MediaFile.from_value(split.rows[2]["image"], split.directory)
    assert file is not None and decode_image(file).size == (SIDE, SIDE)


PROCESSORS = ["vit", "convnext", "swin", "clip", "segformer", "mobilevit", "deit", "beit"]


@pytest.mark.parametrize("kind", PROCESSORS)
def test_the_table_gives_what_the_processor_gives(kind: str) -> None:
    processor = create_image_processor(transformers.AutoConfig.for_model(kind))
    set_size(processor, 32)
    pixels = Pixels(processor)
    assert pixels.size == (32, 32)
    picture = np.random.RandomState(1).randint(0, 256, (32, 32, 3)).astype(np.uint8)
    expected = processor(pillow.fromarray(picture), return_tensors="pt")["pixel_values"][0]
    assert torch.equal(pixels.process(pillow.fromarray(picture)), expected)
    assert torch.equal(pixels.convert(pillow.fromarray(picture)), expected)


def test_a_model_of_one_channel_reads_grey() -> None:
    config = transformers.ViTConfig(num_channels=1, image_size=16)
    processor = create_image_processor(config)
    set_size(processor, 16)
    pixels = Pixels(processor)
    assert (pixels.mode, pixels.process(draw("L")).shape) == ("L", (1, 16, 16))
    assert pixels.convert(draw("L").resize((16, 16))).shape == (1, 16, 16)


def test_what_is_drawn_follows_from_the_seed() -> None:
    augmentation = ImageAugmentation(jitter=0.4, erasing=1.0)
    found = []
    for _ in range(2):
        random.seed(5)
        crop = augmentation.draw_crop(SIDE, SIDE)
        image = augmentation.change_colors(apply_crop(draw(), crop, (16, 16), 2))
        found.append((crop, np.asarray(image).tobytes(), augmentation.erase(torch.ones(3, 16, 16)).sum().item()))
    assert found[0] == found[1]
    assert found[0][2] < 3 * 16 * 16


def test_crops_have_the_sizes_that_are_asked_for() -> None:
    random.seed(0)
    boxes = [draw_box(200, 100, (0.1, 0.5), (0.5, 2.0)) for _ in range(300)]
    areas = [(right - left) * (bottom - top) / 20_000 for left, top, right, bottom in boxes]
    shapes = [(right - left) / (bottom - top) for left, top, right, bottom in boxes]
    assert 0.09 < min(areas) < 0.13 and 0.45 < max(areas) < 0.51
    assert 0.45 < min(shapes) < 0.6 and 1.7 < max(shapes) < 2.1
    assert all(0 <= left < right <= 200 and 0 <= top < bottom <= 100 for left, top, right, bottom in boxes)
    assert draw_box(200, 2, (0.5, 0.5), (1.0, 1.0)) == (99, 0, 101, 2)  # nothing fits: the middle


def test_pictures_of_a_report_are_read_as_untrusted() -> None:
    write_gallery(Path("out"), "a", "<b>Title</b>", [Picture(draw(), "<script>alert(1)</script>", "text", "wrong")])
    page = render_galleries(Path("out"))
    assert "data:image/png;base64," in page and "&lt;script&gt;" in page and "<script>" not in page
    check_self_contained(render_page("title", "what", page))
    assert "<figure>" in page
    write_gallery(Path("row"), "a", "Title", [Picture(draw().resize((1800, 600)), "three in a row")])
    assert "<figure class=wide>" in render_galleries(Path("row"))
    with pillow.open("row/gallery/a-0.png") as thumbnail:
        assert thumbnail.size == (512, 171)
    listed = Path("out/gallery/a.json").read_text()
    Path("out/secret.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Path("out/gallery/a.json").write_text(listed.replace("a-0.png", "../secret.png"))
    assert render_galleries(Path("out")) == ""
    Path("out/gallery/a.json").write_text(listed)
    Path("out/gallery/a-0.png").write_text("<svg onload=alert(1)>")
    assert render_galleries(Path("out")) == ""
    Path("out/gallery/a.json").write_text("{")
    assert render_galleries(Path("out")) == ""
