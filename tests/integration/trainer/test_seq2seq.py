"""`Seq2SeqTrainer`: generation in evaluations, which changes nothing else."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import ostinato
from ostinato import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from ostinato.core.notices import forget_notices
from tests.support import copiers, tiny
from tests.support.apis import QUIET, load_library

load_library("transformers")


def arguments(directory: Path, **settings: Any) -> Seq2SeqTrainingArguments:
    defaults: dict[str, Any] = dict(
        QUIET, output_dir=str(directory), predict_with_generate=True, generation_max_length=12, save_strategy="no",
        per_device_train_batch_size=4, per_device_eval_batch_size=4,
    )  # fmt: skip
    return Seq2SeqTrainingArguments(**{**defaults, **settings})


@pytest.fixture
def build(tmp_path: Path):
    def make(model: Any = None, *, kind: type[Seq2SeqTrainer] = Seq2SeqTrainer, **rest: Any) -> Seq2SeqTrainer:
        names = inspect.signature(Seq2SeqTrainer.__init__).parameters
        options = {name: rest.pop(name) for name in list(rest) if name in names}
        if model is None and "model_init" not in options:
            model = copiers.taught()
        trainer = kind(model, arguments(tmp_path, **rest), **options)
        trainer.remove_callback(ostinato.PrinterCallback)
        return trainer

    return make


def exact(prediction) -> dict[str, float]:
    """Rows that were copied to the end; generated ids begin with the decoder's start."""
    labels = np.where(prediction.label_ids == -100, copiers.PAD, prediction.label_ids)
    width = min(labels.shape[1], prediction.predictions.shape[1] - 1)
    return {"exact": float((prediction.predictions[:, 1 : width + 1] == labels[:, :width]).all(-1).mean())}


# ------------------------------------------------------------------------------------------------- nothing else moves


@pytest.mark.parametrize("every", [1, 3])
def test_sampling_in_evaluations_never_changes_training(build, every: int) -> None:
    def trained(**settings):
        model = copiers.t5(dropout=0.1)
        model.generation_config.do_sample = True
        build(
            model, train_dataset=copiers.rows(), eval_dataset=copiers.rows(4), compute_metrics=exact, max_steps=4,
            **settings,
        ).train()  # fmt: skip
        return model.state_dict()

    quiet, noisy = trained(), trained(eval_strategy="steps", eval_steps=every)
    assert all(torch.equal(weight, noisy[name]) for name, weight in quiet.items())


def test_evaluation_leaves_configs_and_modes_alone(build) -> None:
    trainer = build(compute_metrics=exact)
    model = trainer.model
    model.train()
    before = model.config.to_dict(), model.generation_config.to_dict()
    trainer.evaluate(copiers.rows(), num_beams=2)
    assert (model.config.to_dict(), model.generation_config.to_dict()) == before
    assert not model.config.use_cache, "off, as training wants it"


def test_training_goes_on_in_training_mode(build) -> None:
    modes = []

    class Noting(ostinato.TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            modes.append(model.training)

    build(
        train_dataset=copiers.rows(), eval_dataset=copiers.rows(4), compute_metrics=exact, max_steps=3,
        eval_strategy="steps", eval_steps=1, callbacks=[Noting()],
    ).train()  # fmt: skip
    assert modes == [True] * 3


def test_generation_uses_the_cache(build) -> None:
    """Training switches `config.use_cache` off; the decoder still reads one token at a time, and writes the same."""
    trainer, read = build(per_device_eval_batch_size=10), []
    decoder = trainer.model.decoder
    forward = decoder.forward

    def noted(*args, **kwargs):
        read.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    decoder.forward = noted
    data = copiers.without_labels(copiers.rows())
    with_cache = trainer.predict(data).predictions
    assert set(read) == {1}
    read.clear()
    assert np.array_equal(trainer.predict(data, use_cache=False).predictions, with_cache)
    assert read == list(range(1, len(read) + 1))


@pytest.mark.parametrize("precision", [{"bf16": True}, {"bf16_full_eval": True}])
def test_generation_in_half_precision(build, precision: dict[str, bool]) -> None:
    trainer, seen = build(**precision), set()
    trainer.model.lm_head.register_forward_hook(lambda module, given, output: seen.add(output.dtype))
    assert trainer.predict(copiers.without_labels(copiers.rows())).predictions.dtype == np.int64
    assert seen == {torch.bfloat16}
    assert trainer.model.dtype == torch.float32


# ------------------------------------------------------------------------------------------------------- what is kept


def test_ids_are_as_wide_as_the_longest(build) -> None:
    prediction = build(generation_max_length=30).predict(copiers.rows())
    assert prediction.predictions.shape == (10, 8)
    assert prediction.label_ids.shape == (10, 7)
    assert prediction.predictions.min() >= 0


def test_batches_can_be_kept_apart(build) -> None:
    seen = []

    def widths(prediction):
        seen.extend(part.shape for part in prediction.predictions)
        return {}

    data = sorted(copiers.rows(), key=lambda row: sum(row["attention_mask"]))
    build(eval_do_concat_batches=False, compute_metrics=widths).evaluate(data)
    assert [rows for rows, _ in seen] == [4, 4, 2]
    assert seen[0][1] < seen[2][1]


def test_metrics_per_batch(build) -> None:
    seen = []

    def streaming(prediction, compute_result):
        seen.append(prediction.predictions.shape[0])
        return {"rows": float(sum(seen))} if compute_result else {}

    metrics = build(batch_eval_metrics=True, compute_metrics=streaming).evaluate(copiers.rows())
    assert metrics["eval_rows"] == 10.0


def test_preprocessing_sees_generated_ids(build) -> None:
    def first(ids, labels):
        assert not ids.is_floating_point()
        return ids[:, 1]

    prediction = build(preprocess_logits_for_metrics=first).predict(copiers.rows())
    assert prediction.predictions.tolist() == [row["input_ids"][0] for row in copiers.rows()]


def test_metrics_get_texts(build) -> None:
    """Of ids and labels of different widths, without start, end and padding."""
    seen = {}

    def texts(prediction):
        seen.update(written=prediction.pred_text, wanted=prediction.label_text)
        return {"exact": float(np.mean([a == b for a, b in zip(seen["written"], seen["wanted"], strict=True)]))}

    data = sorted(copiers.rows(), key=lambda row: sum(row["attention_mask"]))
    trainer = build(compute_metrics=texts, processing_class=tiny.tokenizer(), per_device_eval_batch_size=2)
    metrics = trainer.evaluate(data)
    assert seen["wanted"] == [" ".join(f"w{token}" for token in row["input_ids"] if token > 1) for row in data]
    assert metrics["eval_exact"] == build(compute_metrics=exact).evaluate(data)["eval_exact"] > 0.8


def test_metrics_that_fit_are_found(build) -> None:
    metrics = build(compute_metrics="auto", processing_class=tiny.tokenizer()).evaluate(copiers.rows())
    assert metrics["eval_rouge1"] > 0.8


def test_without_generation_it_is_a_trainer(build) -> None:
    logits = build(predict_with_generate=False).predict(copiers.rows()).predictions
    assert logits[0].shape == (10, 7, tiny.VOCAB)


def test_plain_arguments_ask_for_no_generation(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), **QUIET)
    assert isinstance(Seq2SeqTrainer(copiers.taught(), args).predict(copiers.rows()).predictions, tuple)


def test_arguments_of_transformers_are_taken_over(tmp_path: Path) -> None:
    theirs = load_library("transformers").Seq2SeqTrainingArguments(
        str(tmp_path), **QUIET, predict_with_generate=True, generation_num_beams=2, generation_max_length=3
    )
    trainer = Seq2SeqTrainer(copiers.taught(), theirs)
    assert trainer.predict(copiers.rows()).predictions.shape == (10, 3)
    assert trainer._gen_kwargs == {"max_length": 3, "num_beams": 2}


# ------------------------------------------------------------------------------------------------------- which options


def test_options_of_a_call_are_those_of_that_call(build) -> None:
    trainer = build(compute_metrics=exact)
    trainer.evaluate(copiers.rows(), max_length=5, num_beams=2)
    assert trainer._gen_kwargs == {"max_length": 5, "num_beams": 2}
    trainer.evaluate(copiers.rows())
    assert trainer._gen_kwargs == {"max_length": 12}


def test_a_step_by_itself_follows_the_arguments(build) -> None:
    trainer = build(generation_max_length=4)
    trainer.model.eval()
    batch = next(iter(trainer.get_test_dataloader(copiers.rows())))
    _, ids, labels = trainer.prediction_step(trainer.model, batch, prediction_loss_only=False)
    assert (ids.shape, labels.shape) == ((4, 4), (4, 7))
    _, ids, _ = trainer.prediction_step(trainer.model, batch, prediction_loss_only=False, max_length=3)
    assert ids.shape == (4, 3)


def test_a_subclass_sets_the_options_itself(build) -> None:
    """As question answering with generated answers does: its own `evaluate` around the loop."""

    class Answering(Seq2SeqTrainer):
        def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval", **gen_kwargs):
            self._gen_kwargs = {**gen_kwargs, "max_length": 4}
            loader, metrics = self.get_eval_dataloader(eval_dataset), self.compute_metrics
            self.compute_metrics = None
            try:
                output = self.evaluation_loop(loader, "Evaluation", metric_key_prefix=metric_key_prefix)
            finally:
                self.compute_metrics = metrics
            return {"eval_width": float(output.predictions.shape[1])}

    assert build(kind=Answering, compute_metrics=exact).evaluate(copiers.rows(), num_beams=2) == {"eval_width": 4.0}


def test_options_without_generation_are_said_to_do_nothing(build, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = build(predict_with_generate=False)
    forget_notices()
    trainer.evaluate(copiers.rows(), num_beams=2, max_length=3)
    assert capsys.readouterr().err == (
        "ostinato: nothing is generated: predict_with_generate is not set, and num_beams, max_length has no effect\n"
    )


def test_padding_for_subclasses_that_ask_for_it(build) -> None:
    assert build()._pad_tensors_to_max_len(torch.tensor([[5, 6]]), 4).tolist() == [[5, 6, copiers.PAD, copiers.PAD]]


# ----------------------------------------------------------------------------------------------- the generation config


def test_a_dict_is_a_generation_config(build) -> None:
    """So that arguments can be made again from their JSON."""
    config = {"max_length": 4, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    trainer = build(generation_config=config, generation_max_length=None)
    assert trainer.predict(copiers.rows()).predictions.shape == (10, 4)


def test_the_config_given_is_not_shared(build) -> None:
    config = load_library("transformers").GenerationConfig(max_length=4)
    trainer = build(generation_config=config)
    trainer.model.generation_config.max_length = 9
    assert config.max_length == 4


def test_a_model_made_anew_has_it_too(build) -> None:
    trainer = build(
        model_init=lambda: copiers.t5(),
        generation_config={"max_length": 4, "decoder_start_token_id": 0, "pad_token_id": 0},
        train_dataset=copiers.rows(), max_steps=1,
    )  # fmt: skip
    first = trainer.model
    trainer.train()
    assert trainer.model is not first
    assert trainer.model.generation_config.max_length == 4


def test_it_is_saved_with_the_model(build, tmp_path: Path) -> None:
    build(generation_config={"max_length": 4, "decoder_start_token_id": 0}).save_model(str(tmp_path / "saved"))
    saved = load_library("transformers").GenerationConfig.from_pretrained(tmp_path / "saved")
    assert saved.max_length == 4


# ---------------------------------------------------------------------------------------------------- before step one


def test_a_metric_that_fails_is_found_before_the_first_step(build) -> None:
    """Our own overrides are no reason to leave the rehearsal out; a user's are."""

    def failing(prediction):
        return {"accuracy": (prediction.predictions == prediction.label_ids).mean()[0]}

    class Keeping(Seq2SeqTrainer):
        def prediction_step(self, *args, **kwargs):
            return super().prediction_step(*args, **kwargs)

    steps = {}
    for kind in (Seq2SeqTrainer, Keeping):
        trainer = build(
            kind=kind, train_dataset=copiers.rows(), eval_dataset=copiers.rows(), compute_metrics=failing,
            eval_strategy="steps", eval_steps=2, max_steps=4,
        )  # fmt: skip
        with pytest.raises(Exception, match=r"compute_metrics|index|shape|subscript"):
            trainer.train()
        steps[kind.__name__] = trainer.state.global_step
    assert steps == {"Seq2SeqTrainer": 0, "Keeping": 2}


def test_the_constructor_takes_what_the_trainer_takes() -> None:
    ours, base = (inspect.signature(cls.__init__).parameters for cls in (Seq2SeqTrainer, Trainer))
    assert set(ours) == set(base)
    theirs = inspect.signature(load_library("transformers").Seq2SeqTrainer.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs), "positions are those of transformers"
    assert all(base[name].default == parameter.default for name, parameter in ours.items())


def test_a_plain_module_that_can_generate(build) -> None:
    class Echo(nn.Module):
        """Has neither a config nor a loss of its own to speak of."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(tiny.VOCAB, tiny.VOCAB)

        def forward(self, input_ids, labels=None):
            logits = self.table(input_ids)
            return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

        def generate(self, input_ids, max_length=None):
            return input_ids[:, :max_length]

    prediction = build(Echo(), generation_max_length=5).predict(copiers.rows())
    assert prediction.predictions.tolist() == [row["input_ids"][:5] for row in copiers.rows()]
    assert prediction.metrics["test_loss"] > 0
