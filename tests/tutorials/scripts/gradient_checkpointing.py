"""Less memory for more time: activations are computed again in the backward pass."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(42)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        attention_dropout=0.1,
    )
)
ids = torch.randint(0, 32, (32, 16))
rows = [{"input_ids": row, "labels": row} for row in ids]
args = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_steps=6,
    learning_rate=1e-2,
    logging_steps=1,
    save_steps=3,
)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
print(model.is_gradient_checkpointing)
