"""REINFORCE leave-one-out with TRL."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, sentence, tokenizer
from trl import RLOOConfig, RLOOTrainer


def reward(completions, **columns):
    return [float(text.count("good") + 0.1 * text.count("cat")) for text in completions]


witness = Witness()
trainer = RLOOTrainer(
    causal_model(),
    reward_funcs=reward,
    args=RLOOConfig(**SETTINGS, bf16=False, num_generations=2, max_completion_length=6),
    train_dataset=Dataset.from_list([{"prompt": sentence(number, 3)} for number in range(32)]),
    processing_class=tokenizer(),
    callbacks=[witness],
)
trainer.train()
report(trainer, witness)
