"""Where in the text is the answer? Two numbers per row, start and end."""

import sys

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    DefaultDataCollator,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)


class Spans(torch.utils.data.Dataset):
    """Rows of random words; the answer stands between two marks."""

    def __init__(self, size, seed):
        draw = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(4, 30, (size, 16), generator=draw)
        self.start = torch.randint(1, 10, (size,), generator=draw)
        self.end = self.start + torch.randint(0, 4, (size,), generator=draw)
        rows = torch.arange(size)
        self.ids[rows, self.start - 1], self.ids[rows, self.end + 1] = 2, 3

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        mask = torch.ones(16, dtype=torch.long)
        return {
            "input_ids": self.ids[i],
            "attention_mask": mask,
            "start_positions": self.start[i],
            "end_positions": self.end[i],
        }


def exact_match(prediction):
    (start_logits, end_logits), (start, end) = prediction.predictions, prediction.label_ids
    right = (np.argmax(start_logits, -1) == start) & (np.argmax(end_logits, -1) == end)
    return {"exact_match": right.mean()}


model = BertForQuestionAnswering(
    BertConfig(vocab_size=30, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
)
args = TrainingArguments(
    sys.argv[1], max_steps=12, learning_rate=3e-3, logging_steps=3, eval_strategy="steps", eval_steps=6, save_steps=6
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=Spans(40, 0),
    eval_dataset=Spans(18, 1),
    data_collator=DefaultDataCollator(),
    compute_metrics=exact_match,
)
trainer.train()
start, end = trainer.predict(Spans(10, 2)).predictions
print(start.argmax(-1).tolist(), end.argmax(-1).tolist())
