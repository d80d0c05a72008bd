"""Question answering by beam search: its sample, losses and answers of a plain program, silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato.tasks import run
from ostinato.tasks.samples.question_answering_sample import build_question
from ostinato.tasks.samples.sentences import create_random
from ostinato.tasks.tokenizers import XLNET, train_tokenizer
from tests.support.apis import guest
from tests.support.question_reference import squad_by_hand
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

LENGTH, STRIDE = 48, 10
SHORT = [
    *("--max_seq_length", str(LENGTH), "--doc_stride", str(STRIDE), "--num_train_epochs", "2"),
    *("--per_device_train_batch_size", "8", "--logging_steps", "1", "--learning_rate", "2e-3"),
    *("--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def questions(count: int, seed: int) -> list[dict[str, Any]]:
    """Every other row has a context of several windows; every third question has no answer."""
    numbers = create_random(seed)
    rows = [build_question(f"{seed}-{n}", numbers) for n in range(count)]
    for row in rows[::2]:
        row["context"] += " " + " ".join(build_question("", numbers)["context"] for _ in range(3))
    for row in rows[1::3]:
        row["answers"] = {"text": [], "answer_start": []}
    return rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small XLNet, which pads on the left, and its tokenizer."""
    texts = [text for row in questions(100, 0) for text in (row["question"], row["context"])]
    tokenizer = train_tokenizer(texts, 200, XLNET)
    config = transformers.XLNetConfig(
        vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=32, start_n_top=3, end_n_top=4
    )
    transformers.set_seed(3)
    transformers.XLNetModel(config).save_pretrained(shelf / "model")
    tokenizer.save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run("question-answering-beam", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_exact_match"] > 70
    home = Path("runs/question-answering-beam")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    right = [one["prediction"] in row["answers"]["text"] for one, row in zip(predicted, rows, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(finished.metrics["predict_exact_match"])
    assert (home / "eval_nbest_predictions.json").is_file()


def plain_features(tokenizer: Any, row: dict[str, Any], *, learns: bool) -> list[dict[str, Any]]:
    """The windows of one row: the context first, padding before it."""
    made = tokenizer(
        row["context"],
        row["question"],
        truncation="only_first",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
    )
    features = []
    for number, ids in enumerate(made["input_ids"]):
        parts, places = made.sequence_ids(number), made["offset_mapping"][number]
        rest = ids.index(tokenizer.cls_token_id)
        feature: dict[str, Any] = {name: made[name][number] for name in tokenizer.model_input_names}
        feature["cls_index"] = rest
        feature["p_mask"] = [0.0 if part == 0 or token == rest else 1.0 for token, part in enumerate(parts)]
        if learns:
            feature.update(start_positions=rest, end_positions=rest, is_impossible=1.0)
            inside = [token for token, part in enumerate(parts) if part == 0]
            for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True):
                end = start + len(text)
                holds = [token for token in inside if places[token][0] < end and places[token][1] > start]
                if holds and places[inside[0]][0] <= start and places[inside[-1]][1] >= end:
                    feature.update(start_positions=holds[0], end_positions=holds[-1], is_impossible=0.0)
        else:
            feature["places"] = [place if part == 0 else None for place, part in zip(places, parts, strict=True)]
        features.append(feature)
    return features


def best_beam(context: str, features: list[dict[str, Any]], beams: list[Any]) -> str:
    """The likeliest span of all beams of all windows."""
    found = []
    for number, (feature, (chances, starts, end_chances, ends, _)) in enumerate(zip(features, beams, strict=True)):
        for i, start in enumerate(starts):
            for j, end in enumerate(ends.reshape(4, 3)[:, i]):
                places = feature["places"][start], feature["places"][end]
                if None not in places and 0 <= end - start < 30:
                    score = np.log(chances[i]) + np.log(end_chances.reshape(4, 3)[j, i])
                    found.append((-score, number, i, j, context[places[0][0] : places[1][1]].strip()))
    return min(found)[-1] if found else ""


def test_losses_and_answers_are_those_of_a_plain_program(model: str) -> None:
    train, dev = questions(24, 1), questions(12, 2)
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train)]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_train", "--do_eval", *SHORT]
    finished = run("qa_beam_search", [*words, "--version_2_with_negative", "--null_score_diff_threshold", "-0.1"])

    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.XLNetForQuestionAnswering.from_pretrained(model)
    windows = [plain_features(tokenizer, row, learns=False) for row in dev]
    with guest("transformers"):
        theirs = transformers.Trainer(
            model=network,
            args=plain_arguments(2e-3, num_train_epochs=2),
            train_dataset=[each for row in train for each in plain_features(tokenizer, row, learns=True)],
            processing_class=tokenizer,
            data_collator=transformers.default_data_collator,
        )
        theirs.train()
        shown = [{name: each[name] for name in each if name != "places"} for row in windows for each in row]
        outputs = theirs.predict(shown).predictions
    beams = [[part[n] for part in outputs[:5]] for n in range(len(shown))]
    answers, odds = [], []
    for row, features in zip(dev, windows, strict=True):
        mine, beams = beams[: len(features)], beams[len(features) :]
        answers.append(best_beam(row["context"], features, mine))
        odds.append(min(float(one[4]) for one in mine))
    told = ["" if chance > -0.1 else answer for answer, chance in zip(answers, odds, strict=True)]
    assert json.loads(Path("out/eval_predictions.json").read_text(encoding="utf-8")) == {
        row["id"]: answer for row, answer in zip(dev, told, strict=True)
    }
    best = json.loads(Path("out/eval_nbest_predictions.json").read_text(encoding="utf-8"))
    assert [best[row["id"]][0]["text"] if row["id"] in best else "" for row in dev] == answers
    assert any(answers)
    silence = json.loads(Path("out/eval_null_odds.json").read_text())
    assert list(silence.values()) == pytest.approx(odds)
    expected = squad_by_hand(told, [row["answers"]["text"] for row in dev])
    assert finished.metrics["eval_exact"] == pytest.approx(expected["exact_match"])
    assert finished.metrics["eval_f1"] == pytest.approx(expected["f1"])
    assert finished.metrics["eval_best_f1"] >= finished.metrics["eval_f1"]
    finished.trainer.state.log_history.pop()
    assert_same_run(finished.trainer, theirs)


def test_beam_ends_belong_to_their_start(model: str) -> None:
    """What is read from the model's rows of ends is what it says when that start is given to it."""
    network = transformers.XLNetForQuestionAnswering.from_pretrained(model).eval()
    ids = torch.randint(5, 100, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = network(ids, cls_index=torch.tensor([11]), p_mask=torch.zeros(1, 12))
        hidden = network.transformer(ids)[0]
        for i, start in enumerate(output.start_top_index[0].tolist()):
            logits = network.end_logits(hidden, start_positions=torch.tensor([start]))
            chances, tokens = logits.softmax(-1)[0].topk(4)
            assert torch.allclose(output.end_top_log_probs.view(4, 3)[:, i], chances)
            assert output.end_top_index.view(4, 3)[:, i].tolist() == tokens.tolist()
