"""A reward model with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, report, reward_model, sentence, tokenizer
from trl import RewardConfig, RewardTrainer

rows = [{"chosen": f"good yes {sentence(number)}", "rejected": f"bad no {sentence(number)}"} for number in range(48)]
witness = Witness()
trainer = RewardTrainer(
    reward_model(),
    args=RewardConfig(**SETTINGS, bf16=False, max_length=16),
    train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
