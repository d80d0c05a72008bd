"""A worker of Ray Train: the trainer is made and prepared inside it, and reports each checkpoint.

Workers are processes of their own. Where the driver runs on Ostinato, the function that they run begins with
`import ostinato.dropin`.
"""

import importlib
import sys

import ray
from ingredients import OUT, SETTINGS
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def work(settings):
    sys.argv[1:] = [settings["output_dir"]]
    importlib.import_module(settings.pop("first"))
    from ingredients import Witness, causal_model, report, sentence, tokenizer
    from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    words = tokenizer()
    rows = [dict(words(sentence(number))) for number in range(64)]
    witness = Witness()
    trainer = Trainer(
        causal_model(),
        TrainingArguments(**settings),
        train_dataset=rows,
        eval_dataset=rows[:8],
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
        callbacks=[witness, RayTrainReportCallback()],
    )
    trainer = prepare_trainer(trainer)
    trainer.train()
    report(trainer, witness)


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False)
    settings = {**SETTINGS, "save_strategy": "steps", "save_steps": 12, "eval_strategy": "steps", "eval_steps": 12}
    result = TorchTrainer(
        work,
        train_loop_config={**settings, "first": "ostinato.dropin" if "ostinato" in sys.modules else "transformers"},
        scaling_config=ScalingConfig(num_workers=1, use_gpu=False),
        run_config=RunConfig(storage_path=str(OUT / "ray")),
    ).fit()
    assert result.checkpoint is not None
    assert "eval_loss" in result.metrics, result.metrics
    ray.shutdown()
