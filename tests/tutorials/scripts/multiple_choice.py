"""Which of four endings fits? Rows of several texts, padded together."""

import random
import sys

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    DataCollatorForMultipleChoice,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
words = [f"w{i}" for i in range(20)]
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")
draw = random.Random(0)


def example():
    start, label = draw.randrange(12), draw.randrange(4)
    endings = [" ".join(draw.choices(words, k=draw.randrange(2, 5))) for _ in range(4)]
    endings[label] = " ".join(words[start + 3 : start + 6])
    return {"prompt": " ".join(words[start : start + 3]), "endings": endings, "label": label}


def preprocess(batch):
    texts = [f"{prompt} {end}" for prompt, ends in zip(batch["prompt"], batch["endings"], strict=True) for end in ends]
    encoded = tokenizer(texts)
    return {key: [values[i : i + 4] for i in range(0, len(values), 4)] for key, values in encoded.items()}


raw = Dataset.from_list([example() for _ in range(40)])
data = raw.map(preprocess, batched=True, remove_columns=["prompt", "endings"]).train_test_split(12, seed=0)
model = BertForMultipleChoice(
    BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
)
args = TrainingArguments(
    sys.argv[1], num_train_epochs=2, learning_rate=3e-3, eval_strategy="epoch", save_strategy="epoch", logging_steps=2
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tokenizer,
    data_collator=DataCollatorForMultipleChoice(tokenizer=tokenizer),
    compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(axis=1) == p.label_ids).astype(float).mean().item()},
)
trainer.train()
