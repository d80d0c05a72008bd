"""A small model learns from a large one: the trainer takes a teacher, the arguments a temperature."""

import sys

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class DistillationArguments(TrainingArguments):
    def __init__(self, *args, alpha=0.5, temperature=2.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = alpha
        self.temperature = temperature


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher_model=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher_model
        self._move_model_to_device(self.teacher, self.model.device)
        self.teacher.eval()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        student = model(**inputs)
        with torch.no_grad():
            teacher = self.teacher(**inputs)
        assert student.logits.size() == teacher.logits.size()
        divergence = nn.KLDivLoss(reduction="batchmean")(
            nn.functional.log_softmax(student.logits / self.args.temperature, dim=-1),
            nn.functional.softmax(teacher.logits / self.args.temperature, dim=-1),
        )
        loss = self.args.alpha * student.loss + (1.0 - self.args.alpha) * divergence * self.args.temperature**2
        return (loss, student) if return_outputs else loss


def bert(width):
    return BertForSequenceClassification(
        BertConfig(vocab_size=30, hidden_size=width, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )


set_seed(42)
ids = torch.randint(2, 30, (48, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
args = DistillationArguments(
    output_dir=sys.argv[1],
    num_train_epochs=2,
    learning_rate=2e-3,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=2,
    alpha=0.3,
)
trainer = DistillationTrainer(bert(16), args, teacher_model=bert(32), train_dataset=rows[:32], eval_dataset=rows[32:])
trainer.train()
