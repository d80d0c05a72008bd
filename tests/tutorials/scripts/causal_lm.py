"""A language model from raw text: tokenize, join everything, cut into blocks, train, report the perplexity."""

import math
import sys
from itertools import chain

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

set_seed(42)
verses = ["one two three four five", "four three two one", "two four one three five five", "five four three two one"]
words = sorted({word for verse in verses for word in verse.split()})
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<unk>", "<eos>", *words])}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")
raw = Dataset.from_dict({"text": [verses[i % 4] for i in range(80)]}).train_test_split(0.2, seed=0)
block_size = 16


def group_texts(batch):
    joined = {key: list(chain(*batch[key])) for key in batch}
    total = len(joined["input_ids"]) // block_size * block_size
    blocks = {key: [text[i : i + block_size] for i in range(0, total, block_size)] for key, text in joined.items()}
    blocks["labels"] = [list(block) for block in blocks["input_ids"]]
    return blocks


tokenized = raw.map(lambda batch: tokenizer(batch["text"]), batched=True, remove_columns=["text"])
data = tokenized.map(group_texts, batched=True, remove_columns=tokenized["train"].column_names)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=1,
    )
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=3,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    warmup_steps=2,
    weight_decay=0.01,
    logging_steps=3,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tokenizer,
    data_collator=default_data_collator,
)
trainer.train()
print(f"perplexity {math.exp(trainer.evaluate()['eval_loss'])}")
