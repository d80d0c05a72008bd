"""Another optimizer: its class and arguments handed over; and once more by the name of one that is built in."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


def run(name, optimizer_cls_and_kwargs=None, **arguments):
    set_seed(42)
    ids = torch.randint(2, 30, (32, 8))
    rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
    model = BertForSequenceClassification(
        BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )
    args = TrainingArguments(
        f"{sys.argv[1]}/{name}", max_steps=5, weight_decay=0.01, logging_steps=1, save_steps=5, **arguments
    )
    trainer = Trainer(model=model, args=args, train_dataset=rows, optimizer_cls_and_kwargs=optimizer_cls_and_kwargs)
    trainer.train()
    print(name, type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__name__)


run("radam", (torch.optim.RAdam, {"lr": 5e-3, "betas": (0.8, 0.99)}))
run("rmsprop", optim="rmsprop", learning_rate=1e-3, optim_args="alpha=0.9,momentum=0.5")
run("adafactor", optim="adafactor", learning_rate=1e-3, lr_scheduler_type="inverse_sqrt", warmup_steps=2)
