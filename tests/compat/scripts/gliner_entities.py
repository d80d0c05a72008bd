"""Entities with GLiNER: a trainer with a step, an optimizer and loaders of its own."""

from gliner import GLiNER
from gliner.training import Trainer, TrainingArguments
from ingredients import OUT, SETTINGS, WORDS, Witness, bert, report, sentence
from transformers import set_seed

set_seed(3)
model = GLiNER.from_config(
    {
        "model_name": bert("encoder", OUT / "bert"),
        "hidden_size": 16,
        "max_width": 3,
        "dropout": 0.1,
        "fine_tune": True,
        "num_rnn_layers": 1,
    }
)
ANIMALS = ("cat", "dog", "bird")


def row(number):
    words = sentence(number, 8).split()
    return {
        "tokenized_text": words,
        "ner": [[place, place, "animal"] for place, word in enumerate(words) if word in ANIMALS]
        + [[place, place, "colour"] for place, word in enumerate(words) if word in WORDS[:3]],
    }


rows = [row(number) for number in range(48)]
witness = Witness()
trainer = Trainer(
    model,
    TrainingArguments(
        **{**SETTINGS, "learning_rate": 5e-3},
        others_lr=1e-2,
        others_weight_decay=0.01,
        dataloader_num_workers=0,
        eval_strategy="steps",
        eval_steps=12,
    ),
    train_dataset=rows,
    eval_dataset=rows[:8],
    processing_class=model.data_processor.transformer_tokenizer,
    data_collator=model._create_data_collator(),
    callbacks=[witness],
)
trainer.train()
trainer.save_model(str(OUT / "final"))
report(trainer, witness)
