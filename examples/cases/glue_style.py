"""A classification script in the style of 2023: argument dataclasses, datasets' map, train, evaluate, predict.

    ostinato exec examples/cases/glue_style.py --make_sample sample --output_dir sample/out \
        --train_file sample/train.json --validation_file sample/dev.json --test_file sample/test.json \
        --do_train --do_eval --do_predict --num_train_epochs 4 --learning_rate 1e-3 --evaluation_strategy epoch

It imports everything from transformers, with the names of version 4. `ostinato exec` runs it as it is.
"""

import json
import os
import random
from dataclasses import dataclass, field
from typing import Optional  # as scripts of that time have it

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


@dataclass
class DataArguments:
    train_file: Optional[str] = field(default=None, metadata={"help": "Training rows, one JSON object per line."})
    validation_file: Optional[str] = field(default=None, metadata={"help": "Rows to evaluate on."})
    test_file: Optional[str] = field(default=None, metadata={"help": "Rows to predict; they need no label."})
    max_seq_length: int = field(default=32, metadata={"help": "Longer texts are cut."})
    pad_to_max_length: bool = field(default=False, metadata={"help": "Pad every row, and not every batch."})
    max_train_samples: Optional[int] = field(default=None, metadata={"help": "Use only so many training rows."})
    make_sample: Optional[str] = field(
        default=None, metadata={"help": "Write sample files into this directory first."}
    )


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default=None, metadata={"help": "Default: a small BERT, from scratch."})
    hidden_size: int = field(default=32, metadata={"help": "Width of the small BERT."})


def write_sample(directory):
    """Write 400 short reviews of two kinds; in a tenth of them the wording is mixed."""
    good, bad = ["warm", "bright", "tender", "fine"], ["dull", "flat", "grey", "tired"]
    things, draw = ["film", "play", "song", "book", "scene"], random.Random(0)
    os.makedirs(directory, exist_ok=True)
    for name, count in (("train", 300), ("dev", 60), ("test", 40)):
        with open(os.path.join(directory, f"{name}.json"), "w") as file:
            for _ in range(count):
                label = draw.randrange(2)
                words = [draw.choice(good if label else bad) for _ in range(draw.randint(1, 4))]
                if draw.random() < 0.1:
                    words.append(draw.choice(bad if label else good))
                row = {"sentence": f"a {' and '.join(words)} {draw.choice(things)}", "label": label}
                file.write(json.dumps(row if name != "test" else {"sentence": row["sentence"]}) + "\n")


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def main():
    # 1. arguments: three dataclasses, one command line
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    if data_args.make_sample:
        write_sample(data_args.make_sample)
    set_seed(training_args.seed)

    # 2. a run that was interrupted goes on
    checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        checkpoint = get_last_checkpoint(training_args.output_dir)

    # 3. data: files by split, as a DatasetDict
    files = {"train": data_args.train_file, "validation": data_args.validation_file, "test": data_args.test_file}
    raw = load_dataset("json", data_files={split: path for split, path in files.items() if path})
    labels = sorted(set(raw["train"]["label"]))

    # 4. tokenizer and model
    tokenizer = train_tokenizer(raw["train"]["sentence"])
    if model_args.model_name_or_path:
        model = BertForSequenceClassification.from_pretrained(model_args.model_name_or_path, num_labels=len(labels))
    else:
        size = model_args.hidden_size
        model = BertForSequenceClassification(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=size,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=2 * size,
                num_labels=len(labels),
            )
        )

    # 5. tokenizing: once, for all rows, cached on disk
    padding = "max_length" if data_args.pad_to_max_length else False

    def preprocess(examples):
        result = tokenizer(examples["sentence"], padding=padding, max_length=data_args.max_seq_length, truncation=True)
        if "label" in examples:
            result["label"] = examples["label"]
        return result

    with training_args.main_process_first(desc="dataset map pre-processing"):
        raw = raw.map(preprocess, batched=True, desc="Running tokenizer on dataset")
    train_dataset = raw["train"]
    if data_args.max_train_samples is not None:
        train_dataset = train_dataset.select(range(min(len(train_dataset), data_args.max_train_samples)))

    # 6. metric and collator
    def compute_metrics(p: EvalPrediction):
        logits = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
        return {"accuracy": float((np.argmax(logits, axis=1) == p.label_ids).mean())}

    collator = None if data_args.pad_to_max_length else DataCollatorWithPadding(tokenizer)

    # 7. the trainer
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset if training_args.do_train else None,
        eval_dataset=raw["validation"] if training_args.do_eval else None,
        compute_metrics=compute_metrics,
        tokenizer=tokenizer,
        data_collator=collator,
    )

    # 8. train: a TrainOutput(global_step, training_loss, metrics)
    if training_args.do_train:
        result = trainer.train(resume_from_checkpoint=checkpoint)
        metrics = result.metrics
        metrics["train_samples"] = len(train_dataset)
        trainer.save_model()
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
        trainer.save_state()

    # 9. evaluate: a dict of metrics
    if training_args.do_eval:
        metrics = trainer.evaluate(eval_dataset=raw["validation"])
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)

    # 10. predict: a PredictionOutput(predictions, label_ids, metrics)
    if training_args.do_predict:
        test_dataset = raw["test"]
        if "label" in test_dataset.column_names:  # load_dataset gives all splits the same columns
            test_dataset = test_dataset.remove_columns("label")
        predictions = trainer.predict(test_dataset, metric_key_prefix="predict").predictions
        predictions = np.argmax(predictions, axis=1)
        if trainer.is_world_process_zero():
            with open(os.path.join(training_args.output_dir, "predict_results.txt"), "w") as file:
                file.write("index\tprediction\n")
                for index, item in enumerate(predictions):
                    file.write(f"{index}\t{item}\n")


if __name__ == "__main__":
    main()
