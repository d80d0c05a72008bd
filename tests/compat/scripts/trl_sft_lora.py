"""Supervised fine-tuning of an adapter with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

witness = Witness()
trainer = SFTTrainer(
    causal_model(),
    args=SFTConfig(**SETTINGS, bf16=False, max_length=16),
    train_dataset=Dataset.from_list([{"text": sentence(number)} for number in range(64)]),
    processing_class=tokenizer(),
    peft_config=LoraConfig(r=4, task_type="CAUSAL_LM", target_modules="all-linear"),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
