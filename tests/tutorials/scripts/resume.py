"""A run that was broken off goes on from its newest checkpoint, as if nothing had happened."""

import sys

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

ids = torch.randint(2, 30, (40, 8), generator=torch.Generator().manual_seed(0))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]


class BreakOff(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 7:
            control.should_training_stop = True


def build(*callbacks):
    set_seed(42)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )
    args = TrainingArguments(
        sys.argv[1],
        num_train_epochs=3,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="steps",
        save_steps=3,
    )
    return Trainer(model=model, args=args, train_dataset=rows, callbacks=list(callbacks))


build(BreakOff()).train()
checkpoint = get_last_checkpoint(sys.argv[1])
print(checkpoint.split("/")[-1])
trainer = build()
trainer.train(resume_from_checkpoint=True)
print(trainer.state.global_step, trainer.state.epoch)
