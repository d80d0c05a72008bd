"""Translation with T5: texts are generated while evaluating, and compared with what they should be."""

import random
import sys

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

set_seed(42)
english, german = ["one", "two", "three", "four"], ["eins", "zwei", "drei", "vier"]
vocabulary = {word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", *english, *german])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
draw = random.Random(0)
numbers = [[draw.randrange(4) for _ in range(draw.randrange(2, 6))] for _ in range(60)]
raw = Dataset.from_dict(
    {
        "en": [" ".join(english[i] for i in row) for row in numbers],
        "de": [" ".join(german[i] for i in row) for row in numbers],
    }
)
data = raw.map(
    lambda batch: tokenizer(batch["en"], text_target=batch["de"]), batched=True, remove_columns=raw.column_names
).train_test_split(12, seed=0)
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
)


def compute_metrics(prediction):
    predictions, labels = prediction
    predictions = np.where(predictions != -100, predictions, tokenizer.pad_token_id)
    labels = np.where(labels != -100, labels, tokenizer.pad_token_id)
    written = tokenizer.batch_decode(predictions, skip_special_tokens=True)
    wanted = tokenizer.batch_decode(labels, skip_special_tokens=True)
    words = [(a, b) for x, y in zip(written, wanted, strict=True) for a, b in zip(x.split(), y.split(), strict=False)]
    return {"words": sum(a == b for a, b in words) / max(len(words), 1)}


args = Seq2SeqTrainingArguments(
    sys.argv[1],
    num_train_epochs=2,
    learning_rate=1e-2,
    per_device_eval_batch_size=12,
    predict_with_generate=True,
    generation_max_length=8,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=3,
)
trainer = Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    processing_class=tokenizer,
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate(max_length=8, num_beams=2)["eval_words"])
