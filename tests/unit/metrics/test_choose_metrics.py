"""Which metrics fit, in a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.metrics import Facts, facts_of, suits

IOB = {0: "O", 1: "B-PER", 2: "I-PER"}

TABLE: list[tuple[str, dict[str, Any], tuple[str, ...], str]] = [
    # one class per row
    ("two classes", dict(model_class="BertForSequenceClassification", num_labels=2),
     ("accuracy", "f1", "matthews_correlation"), "one of 2 classes"),
    ("more classes", dict(model_class="BertForSequenceClassification", num_labels=5), ("accuracy", "f1"), "5 classes"),
    ("through PEFT", dict(model_class="PeftModelForSequenceClassification", num_labels=3,
                          architectures=("BertForMaskedLM",)),
     ("accuracy", "f1"), "3 classes"),
    ("image", dict(model_class="ViTForImageClassification", num_labels=10), ("accuracy", "f1"), "10 classes"),
    ("audio", dict(model_class="ASTForAudioClassification", num_labels=10), ("accuracy", "f1"), "10 classes"),
    ("next sentence", dict(model_class="BertForNextSentencePrediction", num_labels=2),
     ("accuracy", "f1", "matthews_correlation"), "2 classes"),
    ("choice", dict(model_class="RobertaForMultipleChoice", num_labels=2, label_shape=(4,), label_dtype="int64"),
     ("accuracy",), "picks one"),
    ("said to be single", dict(model_class="BertForSequenceClassification", num_labels=4,
                               problem_type="single_label_classification"), ("accuracy", "f1"), "4 classes"),
    # several labels, values
    ("several labels, said", dict(model_class="BertForSequenceClassification", num_labels=4,
                                  problem_type="multi_label_classification"),
     ("multilabel_f1", "multilabel_accuracy"), "problem_type"),
    ("several labels, by type", dict(model_class="BertForSequenceClassification", num_labels=4, label_dtype="float32",
                                     label_shape=(8, 4)), ("multilabel_f1", "multilabel_accuracy"), "floats"),
    ("value", dict(model_class="BertForSequenceClassification", num_labels=1),
     ("mse", "mae", "pearson", "spearman"), "num_labels=1"),
    ("value, said", dict(model_class="BertForSequenceClassification", num_labels=1, problem_type="regression"),
     ("mse", "mae", "pearson", "spearman"), "problem_type"),
    ("several values, said", dict(model_class="X", num_labels=3, problem_type="regression", label_shape=(8, 3)),
     ("mse", "mae", "r2"), "problem_type"),
    # tokens
    ("entities", dict(model_class="BertForTokenClassification", num_labels=3, id2label=IOB, has_ignored=True),
     ("seqeval",), "whole entities"),
    ("tags", dict(model_class="BertForTokenClassification", num_labels=3, id2label={0: "NOUN", 1: "VERB", 2: "ADJ"}),
     ("accuracy", "f1"), "tokens are compared"),
    ("next token", dict(model_class="LlamaForCausalLM", vocab_size=32000),
     ("perplexity", "token_accuracy"), "one place later"),
    ("next token, GPT-2", dict(model_class="GPT2LMHeadModel", vocab_size=50257),
     ("perplexity", "token_accuracy"), "next token"),
    ("next token, PEFT", dict(model_class="PeftModelForCausalLM"), ("perplexity", "token_accuracy"), "next token"),
    ("images and text", dict(model_class="LlavaForConditionalGeneration"),
     ("perplexity", "token_accuracy"), "next token"),
    ("masked", dict(model_class="BertForMaskedLM", vocab_size=30522), ("perplexity", "token_accuracy"), "in place"),
    ("masked, XLM", dict(model_class="XLMWithLMHeadModel"), ("perplexity", "token_accuracy"), "in place"),
    # texts
    ("encoder and decoder", dict(model_class="T5ForConditionalGeneration", is_encoder_decoder=True),
     ("perplexity", "token_accuracy"), "predict_with_generate=True"),
    ("summaries", dict(model_class="T5ForConditionalGeneration", is_encoder_decoder=True, generates=True,
                       task="summarization"), ("rouge",), "texts"),
    ("writing", dict(model_class="BartForConditionalGeneration", is_encoder_decoder=True, generates=True),
     ("rouge",), "texts"),
    ("translation", dict(model_class="MarianMTModel", is_encoder_decoder=True, generates=True,
                         task="translation_en_to_de"), ("chrf",), "translates"),
    ("translation, sacrebleu", dict(model_class="T5ForConditionalGeneration", is_encoder_decoder=True, generates=True,
                                    task="translation", installed=frozenset({"sacrebleu"})),
     ("chrf", "bleu"), "translates"),
    ("speech", dict(model_class="WhisperForConditionalGeneration", is_encoder_decoder=True, generates=True,
                    installed=frozenset({"jiwer"})), ("wer", "cer"), "speech"),
    ("speech, no jiwer", dict(model_class="WhisperForConditionalGeneration", is_encoder_decoder=True, generates=True),
     (), "pip install 'ostinato[metrics]'"),
    ("speech, CTC", dict(model_class="Wav2Vec2ForCTC", vocab_size=32), (), "metric('wer')"),
    ("causal that writes", dict(model_class="GPT2LMHeadModel", generates=True), ("rouge",), "texts"),
    # answers, pixels
    ("answers", dict(model_class="BertForQuestionAnswering", label_names=("start_positions", "end_positions")),
     ("answer_span",), "start_positions"),
    ("answers, own model", dict(model_class="Mine", label_names=("start_positions", "end_positions")),
     ("answer_span",), "'squad'"),
    ("pixels", dict(model_class="SegformerForSemanticSegmentation", unlabelled_pixel=255), ("mean_iou",), "per pixel"),
    ("objects", dict(model_class="DetrForObjectDetection"), (), "mean average precision"),
    # a model of one's own: the configuration, then the labels
    ("by architecture", dict(model_class="Wrapper", architectures=("BertForMaskedLM",), label_shape=(4, 9),
                             label_dtype="int64"), ("perplexity", "token_accuracy"), "BertForMaskedLM"),
    ("backbone's architecture", dict(model_class="Mine", architectures=("BertForMaskedLM",), label_shape=(4,),
                                     label_dtype="int64", num_labels=3),
     ("accuracy", "f1"), "one whole number per row"),
    ("classes by labels", dict(model_class="Mine", label_shape=(4,), label_dtype="int64"),
     ("accuracy", "f1"), "a class"),
    ("column of classes", dict(model_class="Mine", label_shape=(4, 1), label_dtype="int64"),
     ("accuracy", "f1"), "a class"),
    ("values by labels", dict(model_class="Mine", label_shape=(4,), label_dtype="float32"),
     ("mse", "mae", "pearson", "spearman"), "value"),
    ("several values by labels", dict(model_class="Mine", label_shape=(4, 3), label_dtype="float32",
                                      labels_are_binary=False),
     ("mse", "mae", "r2"), "3 floats per row"),
    ("several labels by labels", dict(model_class="Mine", label_shape=(4, 3), label_dtype="float32",
                                      labels_are_binary=True),
     ("multilabel_f1", "multilabel_accuracy"), "table of 0 and 1"),
    ("several labels as whole numbers", dict(model_class="Mine", label_shape=(4, 3), label_dtype="int64",
                                             labels_are_binary=True, num_labels=3),
     ("multilabel_f1", "multilabel_accuracy"), "table of 0 and 1"),
    ("own encoder and decoder", dict(model_class="Mine", label_shape=(4, 9), label_dtype="int64",
                                     is_encoder_decoder=True),
     ("perplexity", "token_accuracy"), "in place"),
    ("translation, by class", dict(model_class="M2M100ForConditionalGeneration", is_encoder_decoder=True,
                                   generates=True),
     ("chrf",), "translates"),
    ("permuted", dict(model_class="XLNetLMHeadModel"), ("perplexity", "token_accuracy"), "in place"),
    # nothing to be said
    ("tokens of a vocabulary", dict(model_class="Mine", label_shape=(4, 9), label_dtype="int64", vocab_size=100),
     (), "100 tokens"),
    ("0, 1 and -100", dict(model_class="Mine", label_shape=(4, 9), label_dtype="int64", labels_are_binary=True,
                           has_ignored=True, num_labels=9), (), "fit several tasks"),
    ("tokens of whatever", dict(model_class="Mine", label_shape=(4, 9), label_dtype="int64", has_ignored=True),
     (), "fit several tasks"),
    ("table of whatever", dict(model_class="Mine", label_shape=(4, 9), label_dtype="int64", labels_are_binary=True),
     (), "fit several tasks"),
    ("no labels", dict(model_class="Mine"), (), "no labels were seen"),
    ("two heads", dict(model_class="BertForPreTraining"), (), "metrics=["),
    ("nothing known", {}, (), "metrics=["),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "names", "why"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_choice_by_facts(facts: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    choice = suits(Facts(**facts))
    assert choice.names == names
    assert why in choice.why
    assert len(choice.why) < 230
    assert set(choice.options) <= set(choice.names)
    assert ("tokenizer" in choice.needs) == (choice.names[:1] in (("rouge",), ("chrf",), ("wer",)))


@pytest.mark.parametrize(
    ("facts", "names"), [row[1:3] for row in TABLE if row[2]], ids=[row[0] for row in TABLE if row[2]]
)
def test_every_choice_can_be_built(facts: dict[str, Any], names: tuple[str, ...]) -> None:
    if "bleu" in names:
        pytest.importorskip("sacrebleu")
    assert suits(Facts(**facts)).build().keys


def test_options_of_the_choice() -> None:
    causal, masked = (suits(Facts(model_class=name)).options for name in ("GPT2LMHeadModel", "BertForMaskedLM"))
    assert causal["perplexity"] == {"shift": True} and masked["token_accuracy"] == {"shift": False}
    assert suits(Facts(model_class="XForSemanticSegmentation", unlabelled_pixel=255)).options == {
        "mean_iou": {"ignore_index": 255}
    }
    entities = suits(Facts(model_class="XForTokenClassification", id2label=IOB)).build()
    assert entities((np.array([[1, 2, 0]]), np.array([[1, 2, -100]])))["f1"] == 1.0
    text = suits(Facts(model_class="XForSeq2SeqLM", generates=True)).build(tokenizer=lambda rows: ["a"] * len(rows))
    assert text((np.array([[1]]), np.array([[2]])))["rouge1"] == 1.0


def test_facts_of_a_model_and_its_labels() -> None:
    class BertForSequenceClassification(torch.nn.Module):
        config = SimpleNamespace(
            architectures=None,
            problem_type=None,
            num_labels=3,
            id2label={0: "a", 1: "b", 2: "c"},
            task_specific_params={"translation_en_to_de": {}, "translation_en_to_fr": {}},
        )

    facts = facts_of(BertForSequenceClassification(), labels=torch.tensor([0, 2, -100]), generates=True)
    assert facts == Facts(
        model_class="BertForSequenceClassification",
        num_labels=3,
        id2label={0: "a", 1: "b", 2: "c"},
        label_shape=(3,),
        label_dtype="int64",
        labels_are_binary=False,
        has_ignored=True,
        generates=True,
        task="translation",
    )
    table = facts_of(torch.nn.Linear(2, 2), labels=torch.tensor([[0.0, 1.0]]))
    assert (table.label_dtype, table.labels_are_binary, table.has_ignored) == ("float32", True, False)
    assert suits(table).names == ("multilabel_f1", "multilabel_accuracy")
    spans = facts_of(
        torch.nn.Linear(2, 2), labels=(torch.ones(2), torch.ones(2)), label_names=["start_positions", "end_positions"]
    )
    assert suits(spans).names == ("answer_span",)
    assert facts_of(torch.nn.Linear(2, 2)).label_shape is None


def test_facts_of_transformers_models() -> None:
    transformers = pytest.importorskip("transformers")
    small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=20)
    config = transformers.BertConfig(**small, num_labels=3, id2label=IOB, label2id={v: k for k, v in IOB.items()})
    assert suits(facts_of(transformers.BertForTokenClassification(config))).names == ("seqeval",)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**small, num_labels=1))
    assert suits(facts_of(model, labels=torch.ones(4))).names == ("mse", "mae", "pearson", "spearman")
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20))
    assert suits(facts_of(gpt)).names == ("perplexity", "token_accuracy")
    ids = torch.randint(0, 20, (2, 6))
    with torch.no_grad():
        output = gpt(input_ids=ids, labels=ids)
    found = suits(facts_of(gpt)).build()((output.logits, ids))
    assert found["perplexity"] == pytest.approx(float(output.loss.exp()), rel=1e-4)  # the model's own loss agrees
