"""`Seq2SeqTrainer`: the ids, losses and metrics of transformers, without its padding to a configured length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support import copiers, tiny
from tests.support.parity import run_both, run_one
from tests.support.records import assert_same

pytest.importorskip("transformers")


def arguments(api: Any, **settings: Any) -> Any:
    """Quiet arguments of either library; evaluation generates, twelve tokens at most."""
    defaults: dict[str, Any] = dict(
        output_dir=str(api.output_dir), predict_with_generate=True, generation_max_length=12, logging_steps=1,
        per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=1e-2, save_strategy="no",
        report_to="none", disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    return api.Seq2SeqTrainingArguments(**{**defaults, **settings})


def trainer(api: Any, model: Any, *, given: dict[str, Any] | None = None, **settings: Any) -> Any:
    return api.trainer(model, arguments(api, **settings), cls=api.Seq2SeqTrainer, **(given or {}))


def assert_same_rows(theirs: Any, ours: Any, *, filler: int) -> None:
    """Equal as far as ours reaches; what theirs has more is padding."""
    width = ours.shape[1]
    assert np.array_equal(theirs[:, :width], ours)
    assert np.isin(theirs[:, width:], [filler, -100]).all(), "a token was lost"


def assert_same_texts(theirs: Any, ours: Any, *, filler: int = copiers.PAD) -> None:
    assert theirs.predictions.shape[1] >= ours.predictions.shape[1]
    assert_same_rows(theirs.predictions, ours.predictions, filler=filler)
    if theirs.label_ids is None:
        assert ours.label_ids is None
    else:
        assert_same_rows(theirs.label_ids, ours.label_ids, filler=filler)
    timing = ("runtime", "second", "time")
    kept = [{n: v for n, v in one.metrics.items() if not n.endswith(timing)} for one in (theirs, ours)]
    assert kept[0] == kept[1]


def compare(script: Any, **how: Any) -> tuple[Any, Any]:
    theirs, ours = run_both(script)
    assert_same_texts(theirs.result, ours.result, **how)
    return theirs.result, ours.result


WAYS = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "beams, several lengths": {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    "new tokens": {"max_new_tokens": 4},
    "short": {"max_length": 3},
    "no repeats": {"no_repeat_ngram_size": 1},
    "forced start": {"forced_bos_token_id": copiers.START},
    "longer": {"min_length": 9},
    "without a cache": {"use_cache": False},
}


@pytest.mark.parametrize("kind", ["t5", "bart"])
@pytest.mark.parametrize("way", WAYS)
def test_generated_ids(kind: str, way: str) -> None:
    """In one batch, so that losses are means over the same labels in both."""

    def script(api):
        return trainer(api, copiers.taught(kind), per_device_eval_batch_size=10).predict(copiers.rows(), **WAYS[way])

    compare(script)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_batches_of_different_widths(kind: str) -> None:
    """Ids that are shorter than those of another batch end in the padding token, which a tokenizer can decode."""

    def script(api):
        data = sorted(copiers.rows(), key=lambda row: sum(row["attention_mask"]))
        return trainer(api, copiers.taught(kind), per_device_eval_batch_size=2).predict(data, max_length=9)

    theirs, ours = run_both(script)
    for one in (theirs.result, ours.result):
        one.metrics.clear()  # the loss of ragged labels is weighted otherwise: see the evaluation's own tests
    assert_same_texts(theirs.result, ours.result)
    lengths = {int((row[1:] != copiers.PAD).sum()) for row in ours.result.predictions}
    assert len(lengths) > 1, "the rows must have different lengths for this to show anything"
    assert ours.result.predictions.min() >= 0


def test_sampling_draws_the_same_numbers() -> None:
    """With the streams of random numbers shared as transformers shares them."""

    def script(api):
        built = trainer(api, copiers.taught(), per_device_eval_batch_size=10, **api.ours(isolate_rng=False))
        return built.predict(copiers.rows(), do_sample=True, top_k=0, temperature=3.0)

    _, ours = compare(script)
    greedy = run_one(lambda api: trainer(api, copiers.taught()).predict(copiers.rows()), "ostinato").result
    assert not np.array_equal(ours.predictions[:, :5], greedy.predictions[:, :5]), "nothing was drawn"


def test_rows_without_labels() -> None:
    def script(api):
        data = copiers.without_labels(copiers.rows())
        return trainer(api, copiers.taught(), given={"compute_metrics": lambda p: {"never": 1.0}}).predict(data)

    compare(script)


def test_loss_only() -> None:
    def script(api):
        built = trainer(api, copiers.taught(), prediction_loss_only=True, per_device_eval_batch_size=10)
        prediction = built.predict(copiers.rows())
        return prediction.predictions, prediction.label_ids, prediction.metrics["test_loss"]

    theirs, ours = run_both(script)
    assert theirs.result == ours.result
    assert ours.result[:2] == (None, None)


def test_metrics_see_generated_ids() -> None:
    def exact(prediction):
        labels = np.where(prediction.label_ids == -100, copiers.PAD, prediction.label_ids)
        width = min(labels.shape[1], prediction.predictions.shape[1] - 1)
        return {"exact": float((prediction.predictions[:, 1 : width + 1] == labels[:, :width]).all(-1).mean())}

    def script(api):
        built = trainer(api, copiers.taught(), per_device_eval_batch_size=10, given={"compute_metrics": exact})
        metrics = built.evaluate(copiers.rows())
        return metrics["eval_exact"], metrics["eval_loss"], built._gen_kwargs

    theirs, ours = run_both(script)
    assert theirs.result == ours.result
    assert ours.result[0] >= 0.8


def test_training_with_generation_in_between() -> None:
    """Losses, weights, logs and events of a whole run; without dropout nothing is drawn."""

    def script(api):
        def width(prediction):
            return {"first": float(prediction.predictions[:, :4].sum()), "rows": float(len(prediction.label_ids))}

        built = trainer(
            api, copiers.t5(), max_steps=4, eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=10,
            train_sampling_strategy="sequential",
            given={"train_dataset": copiers.rows(), "eval_dataset": copiers.rows(), "compute_metrics": width},
        )  # fmt: skip
        api.train(built)
        return {name: weight.detach().clone() for name, weight in built.model.named_parameters()}

    theirs, ours = run_both(script)
    assert_same(theirs.result, ours.result)
    for one, other in zip(theirs.log_history, ours.log_history, strict=True):
        assert {k: v for k, v in one.items() if "second" not in k and "runtime" not in k} == {
            k: v for k, v in other.items() if "second" not in k and "runtime" not in k
        }


# -------------------------------------------------------------------------------------------- which setting wins

ASKED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # arguments, the call's keywords, the model's generation config
    "nothing": ({"generation_max_length": None}, {}, {"max_length": 6}),
    "arguments": ({}, {}, {"max_length": 6}),
    "both": ({"generation_num_beams": 2}, {}, {}),
    "the call": ({"generation_num_beams": 2}, {"max_length": 5, "num_beams": 3}, {"max_length": 6}),
    "new tokens of the call": ({}, {"max_new_tokens": 2}, {}),
    "both lengths of the call": ({}, {"max_new_tokens": 2, "max_length": 7}, {}),
    "nothing, in words": ({"generation_num_beams": 2}, {"max_length": None, "num_beams": None}, {}),
    "new tokens of the config": ({}, {}, {"max_new_tokens": 3}),
    "new tokens of the config, a length of the call": ({}, {"max_length": 9}, {"max_new_tokens": 3}),
    "beams of the config": ({}, {}, {"num_beams": 2}),
}


@pytest.mark.parametrize("case", ASKED)
def test_which_setting_wins(case: str) -> None:
    settings, call, config = ASKED[case]

    def script(api):
        model, seen = copiers.taught(), []
        for name, value in config.items():
            setattr(model.generation_config, name, value)
        write = model.generate

        def noted(**options):
            ids = write(**options)
            seen.append(({n: options[n] for n in ("max_length", "max_new_tokens", "num_beams") if n in options}, ids))
            return ids

        model.generate = noted
        built = trainer(api, model, per_device_eval_batch_size=10, **settings)
        built.predict(copiers.rows(), **call)
        return seen, built._gen_kwargs

    theirs, ours = run_both(script)
    (their_call, their_ids), (our_call, our_ids) = theirs.result[0][0], ours.result[0][0]
    assert our_call == {name: value for name, value in their_call.items() if value is not None}
    assert theirs.result[1] == ours.result[1]
    assert torch.equal(their_ids, our_ids)


@pytest.mark.parametrize("form", ["object", "directory", "file", "path"])
def test_a_generation_config_is_put_on_the_model(form: str, tmp_path) -> None:
    def script(api):
        import transformers

        config = transformers.GenerationConfig(
            max_length=5,
            num_beams=2,
            pad_token_id=copiers.PAD,
            eos_token_id=copiers.END,
            decoder_start_token_id=0,
        )
        config.save_pretrained(tmp_path)
        file = tmp_path / "generation_config.json"
        given = {"object": config, "directory": str(tmp_path), "file": str(file), "path": file}[form]
        built = trainer(api, copiers.taught(), generation_config=given, generation_max_length=None)
        assert built.model.generation_config is not config
        assert built.model.generation_config.to_diff_dict() == config.to_diff_dict()
        return built.predict(copiers.rows()[:4])

    _, ours = compare(script)
    assert ours.predictions.shape[1] == 5


# --------------------------------------------------------------------------------------- what the decoder is given


def test_decoder_inputs_made_of_the_labels_are_not_told() -> None:
    def script(api):
        data = [{**row, "decoder_input_ids": [0, *row["input_ids"][:-1]], "decoder_attention_mask": [1] * 7}
                for row in copiers.rows()]  # fmt: skip
        return trainer(api, copiers.taught(), per_device_eval_batch_size=10).predict(data)

    _, ours = compare(script)
    plain = run_one(lambda api: trainer(api, copiers.taught()).predict(copiers.rows()), "ostinato").result
    assert np.array_equal(ours.predictions, plain.predictions)


def test_decoder_inputs_of_their_own_are_a_beginning() -> None:
    def script(api):
        data = [{**row, "decoder_input_ids": [0, 5, 6]} for row in copiers.without_labels(copiers.rows())]
        return trainer(api, copiers.taught()).predict(data)

    _, ours = compare(script)
    assert (ours.predictions[:, :3] == [0, 5, 6]).all()


def test_a_model_that_is_a_decoder_only() -> None:
    """GPT-2 goes on where its input ends."""

    def script(api):
        model = tiny.gpt2()
        model.config.pad_token_id = model.generation_config.pad_token_id = 3
        return trainer(api, model, per_device_eval_batch_size=10).predict(tiny.language_rows(10), max_new_tokens=4)

    _, ours = compare(script, filler=3)
    assert ours.predictions.shape == (10, 16)


# ------------------------------------------------------------------------------------------ where they are not right


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_every_batch_may_be_as_long_as_the_first() -> None:
    """transformers writes a length into the model's generation config while it pads the first batch: with no length
    set, later batches are one token shorter. Ours leaves the config alone.
    """

    def script(api):
        model = tiny.t5()  # untaught, it never ends
        before = model.generation_config.to_dict()
        built = trainer(api, model, generation_max_length=None)
        widths, write = [], model.generate

        def noted(**options):
            ids = write(**options)
            widths.append(ids.shape[1])
            return ids

        model.generate = noted
        built.predict(copiers.rows())
        return widths, model.generation_config.to_dict() == before

    theirs, ours = run_both(script)
    assert theirs.result == ([21, 20, 20], False)
    assert ours.result == ([21, 21, 21], True)


def test_options_hold_for_every_set_of_a_dict() -> None:
    """transformers loses the keywords of `evaluate` when it evaluates several sets."""

    def script(api):
        def length(prediction):
            return {"width": float(max((row != copiers.PAD).sum() for row in prediction.predictions))}

        built = trainer(api, copiers.taught(), given={"compute_metrics": length})
        sets = {"a": copiers.rows(4), "b": copiers.rows()[4:8]}
        metrics = built.evaluate(sets, max_new_tokens=2)
        return metrics["eval_a_width"], metrics["eval_b_width"]

    theirs, ours = run_both(script)
    assert theirs.result == (5.0, 7.0)
    assert ours.result == (2.0, 2.0)


def test_the_loss_is_that_of_training() -> None:
    """transformers reports the model's own loss, whatever `compute_loss` is."""

    def script(api):
        class Halved(api.Seq2SeqTrainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                outputs = model(**inputs)
                return (outputs.loss / 2, outputs) if return_outputs else outputs.loss / 2

        def loss(kind):
            built = api.trainer(copiers.taught(), arguments(api, per_device_eval_batch_size=10), cls=kind)
            return built.predict(copiers.rows()).metrics["test_loss"]

        return loss(api.Seq2SeqTrainer), loss(Halved)

    theirs, ours = run_both(script)
    assert theirs.result[0] == theirs.result[1] == ours.result[0]
    assert ours.result[1] == pytest.approx(ours.result[0] / 2)


def test_a_mask_of_the_targets_is_not_told_either() -> None:
    """transformers hands a `decoder_attention_mask` alone to `generate`, which hides what the model just wrote."""

    def script(api):
        data = [{**row, "decoder_attention_mask": [0, 0, 0, 1, 1, 1, 1]} for row in copiers.rows()]
        return trainer(api, copiers.taught("bart")).predict(data).predictions

    theirs, ours = run_both(script)
    plain = run_one(lambda api: trainer(api, copiers.taught("bart")).predict(copiers.rows()), "ostinato").result
    assert np.array_equal(ours.result, plain.predictions)
    assert not np.array_equal(theirs.result[:, : ours.result.shape[1]], ours.result)


def test_no_padding_token_is_needed() -> None:
    """transformers refuses a model without one, because it pads to a configured length."""

    def script(api):
        built = trainer(api, tiny.gpt2(), per_device_eval_batch_size=3)
        try:
            return built.predict(tiny.language_rows(6), max_new_tokens=4).predictions.shape
        except ValueError as error:
            return type(error).__name__

    theirs, ours = run_both(script)
    assert theirs.result == "ValueError"
    assert ours.result == (6, 16)


def test_a_shorter_last_batch_does_not_weigh_as_a_whole_one() -> None:
    """All rows have equally many targets, so that the loss is a mean over rows: the same for every batch size."""
    same = [{**row, "labels": [4, 5, copiers.END]} for row in copiers.rows(5)]

    def script(api):
        losses = []
        for size in (2, 5):
            built = trainer(api, copiers.taught("t5"), predict_with_generate=False, per_device_eval_batch_size=size)
            losses.append(built.evaluate(same)["eval_loss"])
        return losses

    theirs, ours = run_both(script)
    assert ours.result[0] == pytest.approx(ours.result[1], rel=1e-6)
    assert ours.result[1] == pytest.approx(theirs.result[1], rel=1e-6)
    assert theirs.result[0] != pytest.approx(theirs.result[1], rel=1e-3)
