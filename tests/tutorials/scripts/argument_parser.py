"""A command line: dataclasses for the script's own options, `TrainingArguments` for the rest."""

import logging
import sys
from dataclasses import dataclass, field

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=16, metadata={"help": "Width of the model."})
    num_layers: int = field(default=1, metadata={"help": "Its depth."})
    freeze_embeddings: bool = field(default=False)


@dataclass
class DataArguments:
    rows: int = field(metadata={"help": "How many rows are made up."})
    max_length: int | None = field(default=8)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO)
    logger.info("batch size %s", training_args.train_batch_size)
    set_seed(training_args.seed)

    ids = torch.randint(2, 30, (data_args.rows, data_args.max_length))
    rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            hidden_size=model_args.hidden_size,
            num_hidden_layers=model_args.num_layers,
            num_attention_heads=2,
            intermediate_size=32,
        )
    )
    if model_args.freeze_embeddings:
        model.bert.embeddings.requires_grad_(False)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=rows if training_args.do_train else None,
        eval_dataset=rows[:8] if training_args.do_eval else None,
    )
    if training_args.do_train:
        trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    if training_args.do_eval:
        print(trainer.evaluate()["eval_loss"])
    print(training_args.lr_scheduler_type.value, training_args.weight_decay, training_args.optim.value)


if __name__ == "__main__":
    if len(sys.argv) == 2:  # as a shell would give them
        sys.argv[1:] = f"--output_dir {sys.argv[1]} --do_train --do_eval --rows 32 --num_layers 2 --freeze_embeddings \
            --learning_rate 1e-3 --max_steps 8 --per_device_train_batch_size 4 --logging_steps 2 --save_steps 4 \
            --lr_scheduler_type cosine --weight_decay 0.01 --warmup_steps 2 --seed 3".split()
    main()
