"""A data set that is mapped, split and formatted; columns the model does not take are left out by themselves."""

import sys

import numpy as np
from datasets import ClassLabel, Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
good, bad, other = ["fine", "great", "lovely"], ["dull", "awful", "boring"], ["film", "the", "a", "plot", "very"]
words = good + bad + other
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")
draw = np.random.default_rng(0)


def review(label):
    chosen = [*draw.choice(other, size=draw.integers(2, 8)), draw.choice(good if label else bad)]
    return " ".join(draw.permutation(chosen))


labels = draw.integers(0, 2, size=64).tolist()
raw = Dataset.from_dict({"text": [review(label) for label in labels], "label": labels, "idx": list(range(64))})
raw = raw.cast_column("label", ClassLabel(names=["bad", "good"]))
data = raw.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)
data = data.rename_column("label", "labels").train_test_split(test_size=16, seed=1, stratify_by_column="labels")
data.set_format("torch", columns=["input_ids", "attention_mask", "labels"])
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=3,
    learning_rate=2e-3,
    eval_strategy="steps",
    eval_steps=6,
    save_steps=6,
    logging_steps=6,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
)


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer=tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate()["eval_accuracy"])
