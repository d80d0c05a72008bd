"""An embedder with FlagEmbedding: its own runner, with the arguments of a command line."""

import json

from FlagEmbedding.finetune.embedder.encoder_only.base import (
    EncoderOnlyEmbedderDataArguments,
    EncoderOnlyEmbedderModelArguments,
    EncoderOnlyEmbedderRunner,
    EncoderOnlyEmbedderTrainingArguments,
)
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from transformers import HfArgumentParser

file = OUT / "rows.jsonl"
rows = [
    {"query": sentence(number), "pos": [sentence(number, 4)], "neg": [sentence(number + 5, 4)]} for number in range(48)
]
file.write_text("".join(json.dumps(row) + "\n" for row in rows))
kinds = (EncoderOnlyEmbedderModelArguments, EncoderOnlyEmbedderDataArguments, EncoderOnlyEmbedderTrainingArguments)
options = {
    **SETTINGS,
    "model_name_or_path": bert("encoder", OUT / "bert"),
    "train_data": file,
    "cache_path": OUT / "cache",
    "train_group_size": 2,
    "query_max_len": 16,
    "passage_max_len": 16,
    "temperature": 0.2,
}
words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
model, data, training = HfArgumentParser(kinds).parse_args_into_dataclasses(words)
runner = EncoderOnlyEmbedderRunner(model_args=model, data_args=data, training_args=training)
witness = Witness()
runner.trainer.add_callback(witness)
runner.run()
report(runner.trainer, witness)
