"""Names in sentences of different lengths: labels for words, none for padding, F1 over what was found."""

import random
import sys

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
tags = ["O", "PER", "LOC"]
names, places = ["anna", "ben", "carla"], ["paris", "rome"]
others = ["went", "to", "saw", "in", "and", "the", "park"]
vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *names, *places, *others])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")

draw = random.Random(0)
sentences = [[draw.choice(names + places + others) for _ in range(draw.randrange(3, 10))] for _ in range(48)]
raw = Dataset.from_dict(
    {"words": sentences, "tags": [[1 if w in names else 2 if w in places else 0 for w in s] for s in sentences]}
)


def tokenize_and_align(batch):
    encoded = tokenizer(batch["words"], is_split_into_words=True, truncation=True, max_length=16)
    encoded["labels"] = [
        [-100 if word is None else row[word] for word in encoded.word_ids(i)] for i, row in enumerate(batch["tags"])
    ]
    return encoded


data = raw.map(tokenize_and_align, batched=True, remove_columns=raw.column_names).train_test_split(16, seed=0)


def compute_metrics(prediction):
    predicted, labels = np.argmax(prediction.predictions, axis=-1), prediction.label_ids
    known = labels != -100
    hits = ((predicted == labels) & (labels > 0) & known).sum()
    found, there = ((predicted > 0) & known).sum(), ((labels > 0) & known).sum()
    return {"f1": float(2 * hits / max(found + there, 1)), "accuracy": float((predicted == labels)[known].mean())}


model = BertForTokenClassification(
    BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        id2label=dict(enumerate(tags)),
        label2id={tag: i for i, tag in enumerate(tags)},
    )
)
args = TrainingArguments(
    sys.argv[1],
    learning_rate=3e-3,
    per_device_eval_batch_size=int(sys.argv[2]) if len(sys.argv) > 2 else 4,
    num_train_epochs=3,
    weight_decay=0.01,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=2,
    load_best_model_at_end=True,
    metric_for_best_model="f1",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    data_collator=DataCollatorForTokenClassification(tokenizer),
    processing_class=tokenizer,
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate()["eval_f1"])
