"""Texts of similar length share a batch, so that there is less padding."""

import random
import sys

import numpy as np
from datasets import Dataset
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
words = [f"w{i}" for i in range(30)]
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")
draw = random.Random(0)
texts = [" ".join(draw.choices(words, k=draw.randrange(3, 24))) for _ in range(64)]
data = Dataset.from_dict({"text": texts, "label": [int(text[:2] > "w2") for text in texts]})
data = data.map(lambda batch: tokenizer(batch["text"], truncation=True, max_length=24), batched=True)
widths = []


class Collator(DataCollatorWithPadding):
    def __call__(self, features):
        batch = super().__call__(features)
        widths.append(batch["input_ids"].shape[1])
        return batch


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
)
args = TrainingArguments(
    sys.argv[1],
    train_sampling_strategy="group_by_length",
    per_device_train_batch_size=4,
    num_train_epochs=2,
    learning_rate=1e-3,
    logging_steps=4,
    save_strategy="epoch",
)
trainer = Trainer(
    model=model, args=args, train_dataset=data, data_collator=Collator(tokenizer), processing_class=tokenizer
)
trainer.train()
print(widths, np.mean(widths))
