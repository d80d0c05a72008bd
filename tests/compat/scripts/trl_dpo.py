"""Direct preference optimization with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from trl import DPOConfig, DPOTrainer

rows = [
    {"prompt": sentence(number, 3), "chosen": f" {sentence(number + 9, 3)}", "rejected": " bad no bad"}
    for number in range(48)
]
witness = Witness()
trainer = DPOTrainer(
    causal_model(),
    args=DPOConfig(**SETTINGS, bf16=False, max_length=16),
    train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
