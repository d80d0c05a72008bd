"""A callback that ends training once the loss is small enough, and saves at that moment."""

import sys

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed


class StopAt(TrainerCallback):
    """Stop when the logged loss is below a threshold."""

    def __init__(self, threshold):
        self.threshold = threshold

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and logs.get("loss", float("inf")) < self.threshold:
            print(f"step {state.global_step}: good enough")
            control.should_training_stop = True
            control.should_save = True
        return control


class Count(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.steps = 0

    def on_step_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.steps += 1
        assert model is not None and optimizer is not None

    def on_train_end(self, args, state, control, **kwargs):
        print(f"{self.steps} steps of {state.max_steps}")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, labels=None):
        logits = self.layers(x).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(logits, labels)
        return {"loss": loss, "logits": logits}


set_seed(0)
x = torch.randn(64, 8)
rows = [{"x": one, "labels": one.sum()} for one in x]
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=50,
    learning_rate=1e-2,
    logging_steps=4,
    save_strategy="no",
    lr_scheduler_type="constant",
)
trainer = Trainer(Net(), args, train_dataset=rows, callbacks=[StopAt(1.0), Count])
trainer.train()
