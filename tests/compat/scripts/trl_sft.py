"""Supervised fine-tuning with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from trl import SFTConfig, SFTTrainer

witness = Witness()
trainer = SFTTrainer(
    causal_model(),
    args=SFTConfig(**SETTINGS, bf16=False, max_length=16, eval_strategy="steps", eval_steps=10),
    train_dataset=Dataset.from_list([{"text": sentence(number)} for number in range(64)]),
    eval_dataset=Dataset.from_list([{"text": sentence(number)} for number in range(6)]),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
trainer.evaluate()
trainer.save_model()
report(trainer, witness)
