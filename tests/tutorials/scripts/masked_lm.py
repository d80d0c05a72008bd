"""Words are hidden at random, and the model fills them in."""

import random
import sys

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
words = ["red", "green", "blue", "cat", "dog", "bird", "runs", "sleeps", "sings"]
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + words)}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner,
    pad_token="[PAD]",
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    mask_token="[MASK]",
)
draw = random.Random(0)
texts = [
    " ".join(f"{draw.choice(words[:3])} {draw.choice(words[3:6])} {draw.choice(words[6:])}" for _ in range(3))
    for _ in range(48)
]
data = Dataset.from_dict({"text": texts}).map(
    lambda batch: tokenizer(batch["text"]), batched=True, remove_columns="text"
)
model = BertForMaskedLM(
    BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=3,
    learning_rate=5e-3,
    logging_steps=3,
    save_strategy="epoch",
    lr_scheduler_type="cosine",
)
collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=True, mlm_probability=0.3)
trainer = Trainer(model=model, args=args, data_collator=collator, train_dataset=data, processing_class=tokenizer)
trainer.train()
trainer.save_model(f"{sys.argv[1]}/final")
print(type(BertForMaskedLM.from_pretrained(f"{sys.argv[1]}/final")).__name__)
