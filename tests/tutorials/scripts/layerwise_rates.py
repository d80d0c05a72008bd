"""Lower layers learn more slowly: parameter groups by depth, in an overridden `create_optimizer`."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (32, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]


class LayerwiseTrainer(Trainer):
    decay = 0.5

    def create_optimizer(self):
        if self.optimizer is None:
            layers = [self.model.bert.embeddings, *self.model.bert.encoder.layer]
            rate = self.args.learning_rate
            groups = [
                {"params": [*self.model.bert.pooler.parameters(), *self.model.classifier.parameters()], "lr": rate}
            ]
            for layer in reversed(layers):
                rate *= self.decay
                groups.append({"params": list(layer.parameters()), "lr": rate})
            kind, options = Trainer.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = kind(groups, **options)
        return self.optimizer


model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=2,
    learning_rate=1e-2,
    optim="adamw_torch",
    warmup_steps=2,
    logging_steps=1,
    save_strategy="epoch",
)
trainer = LayerwiseTrainer(model=model, args=args, train_dataset=rows)
trainer.train()
print([group["initial_lr"] for group in trainer.optimizer.param_groups], len(trainer.get_learning_rates()))
