"""Odds ratio preference optimization with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

rows = [
    {"prompt": sentence(number, 3), "chosen": f" {sentence(number + 9, 3)}", "rejected": " bad no bad"}
    for number in range(48)
]
witness = Witness()
trainer = ORPOTrainer(
    causal_model(),
    args=ORPOConfig(**SETTINGS, bf16=False, max_length=16, eval_strategy="steps", eval_steps=10),
    train_dataset=Dataset.from_list(rows),
    eval_dataset=Dataset.from_list(rows[:6]),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
