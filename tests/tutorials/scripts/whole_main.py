"""A whole run as example scripts have it: train, save, evaluate, predict, with metrics in files."""

import logging
import os
import sys

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


def main():
    training_args = TrainingArguments(
        sys.argv[1],
        do_train=True,
        do_eval=True,
        do_predict=True,
        num_train_epochs=2,
        learning_rate=2e-3,
        logging_steps=3,
        save_steps=6,
        eval_strategy="epoch",
    )
    last_checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    set_seed(training_args.seed)

    def split(size, seed):
        ids = np.random.default_rng(seed).integers(2, 30, size=(size, 8))
        return Dataset.from_dict({"input_ids": ids, "label": (ids[:, 0] > 15).astype(int), "idx": np.arange(size)})

    raw = DatasetDict(train=split(40, 0), validation=split(16, 1), test=split(10, 2))
    with training_args.main_process_first(desc="dataset map pre-processing"):
        data = raw.map(lambda row: {"attention_mask": [1] * len(row["input_ids"])})
    model = BertForSequenceClassification(
        BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )

    def compute_metrics(p: EvalPrediction):
        predictions = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
        return {"accuracy": (np.argmax(predictions, axis=1) == p.label_ids).astype(np.float32).mean().item()}

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        compute_metrics=compute_metrics,
        data_collator=default_data_collator,
    )

    if training_args.do_train:
        train_result = trainer.train(resume_from_checkpoint=last_checkpoint)
        metrics = train_result.metrics
        metrics["train_samples"] = len(data["train"])
        trainer.save_model()
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
        trainer.save_state()

    if training_args.do_eval:
        metrics = trainer.evaluate(eval_dataset=data["validation"])
        metrics["eval_samples"] = len(data["validation"])
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)

    if training_args.do_predict:
        predictions = trainer.predict(data["test"].remove_columns("label"), metric_key_prefix="predict").predictions
        output = os.path.join(training_args.output_dir, "predict_results.txt")
        if trainer.is_world_process_zero():
            with open(output, "w") as writer:
                for index, item in enumerate(np.argmax(predictions, axis=1)):
                    writer.write(f"{index}\t{item}\n")
        with open(output) as reader:
            print(reader.read())


if __name__ == "__main__":
    main()
