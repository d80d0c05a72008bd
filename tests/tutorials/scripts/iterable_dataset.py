"""Data from a generator without a length: `max_steps` says where training ends."""

import random
import sys

from torch.utils.data import IterableDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Stream(IterableDataset):
    """Numbers whose parity is to be learned; ends after `size` rows."""

    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __iter__(self):
        draw = random.Random(self.seed)
        for _ in range(self.size):
            digits = [draw.randrange(10) for _ in range(6)]
            yield {"input_ids": [10, *digits], "attention_mask": [1] * 7, "labels": digits[-1] % 2}


set_seed(42)
model = BertForSequenceClassification(
    BertConfig(vocab_size=12, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
)
args = TrainingArguments(
    sys.argv[1],
    max_steps=18,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=3e-3,
    warmup_steps=3,
    logging_steps=3,
    eval_strategy="steps",
    eval_steps=6,
    save_steps=6,
    save_total_limit=2,
)
trainer = Trainer(model, args, train_dataset=Stream(64, seed=0), eval_dataset=Stream(20, seed=1))
trainer.train()
print(trainer.state.epoch)
