"""Gradient accumulation over answers of different lengths: every token of the step counts the same."""

import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
words = [f"w{i}" for i in range(20)]
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<pad>", "<unk>", *words])}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>")
draw = random.Random(1)
rows = []
for _ in range(32):
    start, length = draw.randrange(8), draw.randrange(3, 10)
    prompt = tokenizer(" ".join(words[start : start + 3])).input_ids
    answer = tokenizer(" ".join(words[start + 3 : start + 3 + length])).input_ids
    rows.append(
        {
            "input_ids": prompt + answer,
            "attention_mask": [1] * len(prompt + answer),
            "labels": [-100] * len(prompt) + answer,
        }
    )
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
    )
)
args = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    learning_rate=1e-2,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=2,
    logging_steps=1,
    include_num_input_tokens_seen="non_padding",
    save_steps=6,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows,
    data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
    processing_class=tokenizer,
)
trainer.train()
print(trainer.state.num_input_tokens_seen)
