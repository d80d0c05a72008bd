"""A step of one's own: the gradient of the batch plus that of the batch with disturbed embeddings."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class AdversarialTrainer(Trainer):
    epsilon = 0.5

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        words = model.bert.embeddings.word_embeddings.weight
        kept = words.data.clone()
        norm = torch.norm(words.grad)
        if norm != 0:
            words.data.add_(self.epsilon * words.grad / norm)
        with self.compute_loss_context_manager():
            disturbed = self.compute_loss(model, inputs)
        self.accelerator.backward(disturbed)
        words.data = kept
        return loss.detach() / self.args.gradient_accumulation_steps


set_seed(42)
ids = torch.randint(2, 30, (32, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(sys.argv[1], max_steps=8, learning_rate=2e-3, logging_steps=1, save_steps=4)
AdversarialTrainer(model=model, args=args, train_dataset=rows).train()
