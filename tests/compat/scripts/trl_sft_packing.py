"""Supervised fine-tuning with TRL: an adapter, and several texts in one row."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

witness = Witness()
trainer = SFTTrainer(
    causal_model(),
    args=SFTConfig(
        **{**SETTINGS, "learning_rate": 2e-2}, bf16=False, max_length=16, packing=True, packing_strategy="wrapped"
    ),
    train_dataset=Dataset.from_list([{"text": sentence(number)} for number in range(160)]),
    processing_class=tokenizer(),
    peft_config=LoraConfig(r=4, task_type="CAUSAL_LM", target_modules="all-linear"),
    callbacks=[witness],
)
assert trainer.args.packing is True
trainer.train()
trainer.save_model()
report(trainer, witness)
