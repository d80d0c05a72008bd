"""Tokenizers and other processing classes: which collator they get, what is saved, what the model's configs take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.core.notices import forget_notices
from tests.support import adapters, tiny
from tests.support.apis import Api, load_library
from tests.support.parity import check_parity

pytest.importorskip("transformers", reason="nothing to compare with")
hf = load_library("transformers")

IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
PAD, BOS, EOS = "w6", "w7", "w5"  # their ids are their numbers


def make_tokenizer(**tokens: str) -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = None
    for name, token in tokens.items():
        setattr(tokenizer, name, token)
    return tokenizer


def complete() -> Any:
    return make_tokenizer(pad_token=PAD, bos_token=BOS, eos_token=EOS)


def make_gpt2(kind: str = "LMHeadModel", **settings: Any) -> Any:
    defaults = {"vocab_size": tiny.VOCAB, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = hf.GPT2Config(**{**defaults, "num_labels": 3, "bos_token_id": 0, "eos_token_id": 0, **settings})
    return tiny.seeded(getattr(hf, f"GPT2{kind}"), config)


def make_llava() -> Any:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = hf.LlamaConfig(vocab_size=tiny.VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0, **sizes)
    vision = hf.CLIPVisionConfig(image_size=8, patch_size=4, projection_dim=8, **sizes)
    config = hf.LlavaConfig(text_config=text, vision_config=vision, image_token_index=tiny.VOCAB - 1)
    return tiny.seeded(hf.LlavaForConditionalGeneration, config)


class ImagePadder:
    """Something of a user's that pads images, and is no tokenizer."""

    def pad(self, images: Any, **options: Any) -> Any:
        return images


def make_image_processor() -> Any:
    return hf.ViTImageProcessorPil(size={"height": 8, "width": 8})


# ---- the collator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "collator"),
    [
        (lambda: None, "default_data_collator"),
        (complete, "DataCollatorWithPadding"),
        (lambda: hf.Wav2Vec2FeatureExtractor(), "DataCollatorWithPadding"),
        (make_image_processor, "default_data_collator"),
        (lambda: hf.DetrImageProcessorPil(), "default_data_collator"),
        (ImagePadder, "default_data_collator"),
        (lambda: hf.CLIPProcessor(hf.CLIPImageProcessorPil(), complete()), "default_data_collator"),
        (lambda: hf.Wav2Vec2Processor(hf.Wav2Vec2FeatureExtractor(), complete()), "default_data_collator"),
    ],
    ids=["none", "tokenizer", "feature extractor", "image processor", "detr", "own", "processor", "speech processor"],
)
def test_the_default_collator(api: Api, make: Callable[[], Any], collator: str) -> None:
    chosen = api.trainer(tiny.regression(), api.args(), processing_class=make()).data_collator
    assert getattr(chosen, "__name__", type(chosen).__name__) == collator


def test_images_are_trained_on_without_a_collator() -> None:
    def script(api: Api) -> None:
        processor = make_image_processor()
        images = torch.arange(12 * 3 * 8 * 8).remainder(251).to(torch.uint8).reshape(12, 3, 8, 8)
        pixels = processor(list(images), return_tensors="pt")["pixel_values"]
        rows = [{"pixel_values": image, "labels": number % 2} for number, image in enumerate(pixels)]
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = tiny.seeded(hf.ViTForImageClassification, hf.ViTConfig(image_size=8, patch_size=4, **sizes))
        api.fit(model, rows, trainer={"processing_class": processor}, max_steps=3, per_device_train_batch_size=4)

    check_parity(script)


# ---- what is saved --------------------------------------------------------------------------------------------------


class Named:
    """Something that can be saved, and leaves its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def save_pretrained(self, directory: str) -> None:
        Path(directory, f"saved-{self.name}").touch()


class Collator:
    """Joins rows; its attributes are what a user's collator may hold."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return hf.default_data_collator(rows)


def save(api: Api, **trainer: Any) -> list[Path]:
    """The directories of a checkpoint and of a model saved by hand."""
    rows = tiny.classification_rows()
    built = api.fit(tiny.bert(), rows, trainer=trainer, max_steps=1, save_strategy="steps", save_steps=1)
    built.save_model(str(api.output_dir / "by hand"))
    return [api.output_dir / "checkpoint-1", api.output_dir / "by hand"]


def test_the_tokenizer_of_the_collator_is_saved(api: Api) -> None:
    tokenizer = complete()
    for directory in save(api, data_collator=api.DataCollatorWithPadding(tokenizer)):
        loaded = hf.AutoTokenizer.from_pretrained(directory)
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded("w3 w4 w9")["input_ids"] == [3, 4, 9]


@pytest.mark.parametrize(
    ("given", "held", "saved"),
    [
        (None, ["tokenizer"], ["saved-tokenizer"]),
        ("given", ["tokenizer"], ["saved-given"]),
        (None, ["processor", "tokenizer"], ["saved-tokenizer"]),
        (None, ["processor"], []),
        (None, [], []),
    ],
    ids=str,
)
def test_what_is_saved_beside_the_model(api: Api, given: str | None, held: list[str], saved: list[str]) -> None:
    collator = Collator(**{name: Named(name) for name in held})
    for directory in save(api, processing_class=given and Named(given), data_collator=collator):
        assert [path.name for path in sorted(directory.glob("saved-*"))] == saved


def test_the_collators_tokenizer_is_said_to_be_saved(ours: Api, capfd: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    save(ours, data_collator=Collator(tokenizer=object()))
    assert "tokenizer" not in capfd.readouterr().err
    save(ours, data_collator=Collator(tokenizer=Named("tokenizer")))
    line = "ostinato: processing_class is not given: the collator's tokenizer is saved with the model\n"
    assert capfd.readouterr().err.count(line) == 1


# ---- special tokens -------------------------------------------------------------------------------------------------


def ids_of(config: Any) -> tuple[Any, ...]:
    return tuple(getattr(config, name, None) for name in IDS)


def generating(model: Any, **ids: Any) -> Any:
    for name, value in ids.items():
        setattr(model.generation_config, name, value)
    return model


def test_a_classifier_with_the_end_of_texts_as_padding() -> None:
    """Without a pad token it refuses batches of more than one row."""

    def script(api: Api) -> None:
        tokenizer = make_tokenizer(eos_token=EOS)
        tokenizer.pad_token = tokenizer.eos_token
        built = api.fit(
            make_gpt2("ForSequenceClassification"),
            tiny.ragged_classification_rows(),
            trainer={"processing_class": tokenizer},
            max_steps=3,
            per_device_train_batch_size=4,
        )
        assert ids_of(built.model.config) == (5, 0, 5)

    check_parity(script)


# model, processing class, and the ids (pad, bos, eos) of config and generation config after training
ALIGNED: dict[str, tuple[Callable[[], Any], Callable[[], Any], Any, Any]] = {
    "all differ": (make_gpt2, complete, (6, 7, 5), (6, 7, [5, 0])),
    "some are missing": (
        lambda: make_gpt2(pad_token_id=3),
        lambda: make_tokenizer(eos_token=EOS),
        (3, 0, 5),
        (3, 0, [5, 0]),
    ),
    "none is there": (lambda: make_gpt2(pad_token_id=3), make_tokenizer, (3, 0, 0), (3, 0, 0)),
    "all agree": (
        lambda: make_gpt2(pad_token_id=6, bos_token_id=7, eos_token_id=5),
        complete,
        (6, 7, 5),
        (6, 7, 5),
    ),
    "several ends, and not this one": (
        lambda: generating(make_gpt2(), eos_token_id=[0, 9]),
        complete,
        (6, 7, 5),
        (6, 7, [5, 0, 9]),
    ),
    "several ends, and this one": (lambda: make_gpt2(eos_token_id=[0, 5]), complete, (6, 7, [0, 5]), (6, 7, [0, 5])),
    "several ends in the config alone": (
        lambda: generating(make_gpt2(eos_token_id=[0, 9]), eos_token_id=5),
        complete,
        (6, 7, [5, 0, 9]),
        (6, 7, [5]),
    ),
    "generation differs alone": (
        lambda: generating(make_gpt2(pad_token_id=6, eos_token_id=5), pad_token_id=1, eos_token_id=None),
        complete,
        (6, 7, 5),
        (6, 7, [5]),
    ),
    "no generation config": (lambda: make_gpt2("ForSequenceClassification"), complete, (6, 7, 5), None),
    "a text config inside": (make_llava, complete, (6, 7, 5), (6, 7, [5, 2])),
    "a processor": (
        make_gpt2,
        lambda: hf.CLIPProcessor(hf.CLIPImageProcessorPil(), complete()),
        (6, 7, 5),
        (6, 7, [5, 0]),
    ),
    "a feature extractor": (make_gpt2, lambda: hf.Wav2Vec2FeatureExtractor(), (None, 0, 0), (None, 0, 0)),
    "no processing class": (make_gpt2, lambda: None, (None, 0, 0), (None, 0, 0)),
    "an adapter": (
        lambda: adapters.lora(make_gpt2(), "CAUSAL_LM", "c_attn", fan_in_fan_out=True),
        complete,
        (6, 7, 5),
        (6, 7, [5, 0]),
    ),
}


@pytest.mark.parametrize("case", ALIGNED)
def test_special_tokens_of_the_tokenizer_reach_the_model(api: Api, case: str) -> None:
    make_model, make_processing_class, config, generation = ALIGNED[case]
    if case == "an adapter":
        pytest.importorskip("peft", reason="the dev extra has it")
    model = make_model()
    rows = tiny.language_rows() if generation is not None else tiny.classification_rows()
    before = ids_of(model.config.get_text_config())
    trainer = api.trainer(
        model,
        api.args(max_steps=1),
        train_dataset=rows,
        eval_dataset=rows[:1],
        processing_class=make_processing_class(),
        data_collator=api.default_data_collator,
    )
    trainer.evaluate()
    assert ids_of(model.config.get_text_config()) == before  # training changes them, and nothing before it
    trainer.train()
    assert ids_of(model.config.get_text_config()) == config
    assert (None if generation is None else ids_of(model.generation_config)) == generation
    trainer.train()
    assert ids_of(model.config.get_text_config()) == config


def test_special_tokens_are_saved(api: Api) -> None:
    collator = api.DataCollatorForSeq2Seq(complete())
    args = api.Seq2SeqTrainingArguments(
        str(api.output_dir), max_steps=1, save_steps=1, use_cpu=True, report_to="none", disable_tqdm=True
    )
    trainer = api.Seq2SeqTrainer(
        tiny.t5(), args, data_collator=collator, train_dataset=tiny.translation_rows(), processing_class=complete()
    )
    trainer.train()
    for name, eos in (("config", 5), ("generation_config", [5, 1])):
        saved = json.loads((api.output_dir / "checkpoint-1" / f"{name}.json").read_text())
        assert tuple(saved[one] for one in IDS) == (6, 7, eos)
        assert saved["decoder_start_token_id"] == 0


def test_the_tokenizer_of_the_collator_changes_no_special_token(api: Api) -> None:
    collator = api.DataCollatorWithPadding(complete())
    trainer = api.fit(make_gpt2(), tiny.language_rows(), trainer={"data_collator": collator}, max_steps=1)
    assert ids_of(trainer.model.config) == (None, 0, 0)
