"""Kahneman-Tversky optimization with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from trl import KTOConfig, KTOTrainer

rows = [
    {"prompt": sentence(number, 3), "completion": f" {sentence(number + 9, 3)}", "label": number % 2 == 0}
    for number in range(48)
]
witness = Witness()
trainer = KTOTrainer(
    causal_model(),
    args=KTOConfig(**SETTINGS, bf16=False, max_length=16),
    train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
