"""A reranker with FlagEmbedding."""

import json

from FlagEmbedding.abc.finetune.reranker import (
    AbsRerankerDataArguments,
    AbsRerankerModelArguments,
    AbsRerankerTrainingArguments,
)
from FlagEmbedding.finetune.reranker.encoder_only.base import EncoderOnlyRerankerRunner
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence

file = OUT / "rows.jsonl"
rows = [{"query": sentence(number), "pos": [sentence(number, 4)], "neg": ["bad no bad no"]} for number in range(48)]
file.write_text("".join(json.dumps(row) + "\n" for row in rows))
runner = EncoderOnlyRerankerRunner(
    model_args=AbsRerankerModelArguments(model_name_or_path=bert("classifier", OUT / "bert")),
    data_args=AbsRerankerDataArguments(
        train_data=[str(file)], cache_path=str(OUT / "cache"), train_group_size=2, query_max_len=16, passage_max_len=16
    ),
    training_args=AbsRerankerTrainingArguments(**{**SETTINGS, "learning_rate": 1e-2}),
)
witness = Witness()
runner.trainer.add_callback(witness)
runner.run()
report(runner.trainer, witness)
