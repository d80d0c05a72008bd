"""Queries and answers side by side: one encoder, two texts per row, the other rows of a batch as wrong answers."""

import sys

import torch
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainingArguments, set_seed


class BiEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = BertModel(
            BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        )

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.mean(1)


def collate(rows):
    batch = {}
    for side in ("query", "answer"):
        ids = torch.stack([row[side] for row in rows])
        batch[f"{side}_input_ids"], batch[f"{side}_attention_mask"] = ids, torch.ones_like(ids)
    return batch


class ContrastiveTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        sides = [model(inputs[f"{side}_input_ids"], inputs[f"{side}_attention_mask"]) for side in ("query", "answer")]
        scores = nn.functional.cosine_similarity(sides[0][:, None], sides[1][None], dim=-1) * 10
        loss = nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))
        return (loss, {"scores": scores}) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss = self.compute_loss(model, inputs)
        return loss, None, None


set_seed(42)
query = torch.randint(2, 30, (48, 6))
rows = [{"query": one, "answer": one.flip(0)} for one in query]
args = TrainingArguments(
    sys.argv[1],
    remove_unused_columns=False,
    num_train_epochs=2,
    learning_rate=5e-3,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
)
trainer = ContrastiveTrainer(
    model=BiEncoder(), args=args, data_collator=collate, train_dataset=rows[:32], eval_dataset=rows[32:]
)
trainer.train()
