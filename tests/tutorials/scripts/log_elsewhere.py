"""A callback that writes the logs into a CSV file of its own, and one that keeps them in memory."""

import csv
import sys
from pathlib import Path

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class CsvLogger(TrainerCallback):
    columns = ("step", "epoch", "loss", "eval_loss", "learning_rate")

    def __init__(self, path):
        self.path = Path(path)

    def on_train_begin(self, args, state, control, **kwargs):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(",".join(self.columns) + "\n")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            entry = {"step": state.global_step, **(logs or {})}
            with self.path.open("a") as file:
                csv.writer(file).writerow([entry.get(column, "") for column in self.columns])


class History(TrainerCallback):
    def __init__(self):
        self.evaluations = []

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.evaluations.append((state.global_step, metrics["eval_loss"]))


set_seed(5)
text = torch.randint(0, 30, (24, 12))
rows = [{"input_ids": row, "labels": row.clone()} for row in text]
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=30, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
)
history = History()
args = TrainingArguments(
    sys.argv[1],
    max_steps=9,
    learning_rate=1e-2,
    logging_steps=3,
    logging_first_step=True,
    eval_strategy="steps",
    eval_steps=3,
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows[:16],
    eval_dataset=rows[16:],
    callbacks=[CsvLogger(Path(sys.argv[1]) / "log.csv"), history],
)
trainer.remove_callback(PrinterCallback)
trainer.train()
print((Path(sys.argv[1]) / "log.csv").read_text())
print(history.evaluations)
