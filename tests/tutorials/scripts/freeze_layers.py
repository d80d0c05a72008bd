"""Only the head and the last layer are trained; the rest of the model is frozen."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)
)
for parameter in model.bert.embeddings.parameters():
    parameter.requires_grad = False
for layer in model.bert.encoder.layer[:-1]:
    layer.requires_grad_(False)
before = {name: value.clone() for name, value in model.state_dict().items()}

ids = torch.randint(2, 30, (32, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
args = TrainingArguments(
    sys.argv[1],
    max_steps=8,
    learning_rate=5e-3,
    weight_decay=0.1,
    logging_steps=2,
    save_steps=4,
    save_only_model=True,
)
trainer = Trainer(model=model, args=args, train_dataset=rows)
print(trainer.get_num_trainable_parameters(), "of", sum(one.numel() for one in model.parameters()))
trainer.train()
changed = sorted(name for name, value in model.state_dict().items() if not torch.equal(value, before[name]))
print(changed)
