"""NEFTune: noise on the embeddings while training, none while evaluating or afterwards."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(42)
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 20, (32, 10))]
args = TrainingArguments(
    sys.argv[1],
    neftune_noise_alpha=5,
    max_steps=10,
    learning_rate=1e-2,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=5,
    save_steps=5,
)
trainer = Trainer(model=model, args=args, train_dataset=rows[:24], eval_dataset=rows[24:])
trainer.train()
model.train()
ids = torch.arange(5)[None]
print(torch.equal(model.get_input_embeddings()(ids), model.get_input_embeddings()(ids)))
