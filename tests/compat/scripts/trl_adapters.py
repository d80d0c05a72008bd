"""Preferences, rewards and generated answers with TRL, each with an adapter."""

from datasets import Dataset
from ingredients import SETTINGS, Witness, causal_model, report, reward_model, sentence, tokenizer
from peft import LoraConfig
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    RLOOConfig,
    RLOOTrainer,
)

QUICK = {**SETTINGS, "bf16": False, "max_steps": 4}
pairs = [
    {"prompt": sentence(number, 3), "chosen": f" {sentence(number + 9, 3)}", "rejected": " bad no bad"}
    for number in range(24)
]
answers = [{"prompt": row["prompt"], "completion": row["chosen"], "label": True} for row in pairs]
prompts = [{"prompt": row["prompt"]} for row in pairs]


def reward(completions, **columns):
    return [float(text.count("good") + 0.1 * text.count("cat")) for text in completions]


def adapter(task):
    return LoraConfig(r=4, task_type=task, target_modules=["q_proj", "v_proj"])


def run(make, config, rows, *, task="CAUSAL_LM", **more):
    """Train a few steps, and return the history."""
    model = causal_model() if task == "CAUSAL_LM" else reward_model()
    trainer = make(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
        peft_config=adapter(task),
        callbacks=[witness],
        **more,
    )
    trainer.train()
    trainer.save_model()
    return trainer


witness = Witness()
trainers = [
    run(DPOTrainer, DPOConfig(**QUICK, max_length=16), pairs),
    run(KTOTrainer, KTOConfig(**QUICK, max_length=16), answers),
    run(RewardTrainer, RewardConfig(**QUICK, max_length=16), pairs, task="SEQ_CLS"),
    run(GRPOTrainer, GRPOConfig(**QUICK, num_generations=2, max_completion_length=6), prompts, reward_funcs=reward),
    run(RLOOTrainer, RLOOConfig(**QUICK, num_generations=2, max_completion_length=6), prompts, reward_funcs=reward),
]
report(trainers[-1], witness, history=[entry for trainer in trainers for entry in trainer.state.log_history])
