"""Train a language model from raw text: tokenize with `map`, cut into blocks with `group_texts`, train, write.

    python examples/language_model.py

The text is what Python's standard library says about itself, read from the Python that runs this; the tokenizer is
trained on it. Nothing is downloaded. Half a minute on one core.
"""

import ast
import math
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ostinato import DataCollatorForLanguageModeling, Trainer, TrainingArguments, set_seed

BLOCK, WORDS = 64, 1024


def load_texts() -> list[str]:
    """The docstrings of modules, classes and functions."""
    texts = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-f]*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                texts.append(ast.get_docstring(node))
    return texts


def train_tokenizer(texts) -> PreTrainedTokenizerFast:
    """Pairs of bytes that are often neighbours become one token."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=WORDS, special_tokens=["<end>"], initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")


def group_texts(batch):
    """Lay the texts of a batch end to end, and cut the line into blocks of one length; the rest is dropped."""
    line = [token for ids in batch["input_ids"] for token in ids]
    return {"input_ids": [line[start : start + BLOCK] for start in range(0, len(line) - BLOCK + 1, BLOCK)]}


def perplexity_of_frequencies(train, test) -> float:
    """What a model reaches that knows how often each token occurs, and nothing about its neighbours."""
    counts = Counter(token for ids in train["input_ids"] for token in ids)
    total = counts.total() + WORDS
    tokens = [token for ids in test["input_ids"] for token in ids[1:]]
    return math.exp(-sum(math.log((counts[token] + 1) / total) for token in tokens) / len(tokens))


def main(epochs: float = 4) -> tuple[float, float]:
    """Train, evaluate, write a little; returns the perplexity, and that of knowing only how frequent tokens are."""
    set_seed(42)
    texts = load_texts()
    tokenizer = train_tokenizer(texts[100:])
    raw = Dataset.from_dict({"text": [text + tokenizer.eos_token for text in texts]})
    tokens = raw.map(
        lambda batch: {"input_ids": tokenizer(batch["text"])["input_ids"]}, batched=True, remove_columns="text"
    )
    test, train = (
        part.map(group_texts, batched=True)
        for part in (tokens.select(range(100)), tokens.select(range(100, len(tokens))))
    )
    size = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size))
    args = TrainingArguments(
        output_dir="runs/language_model",
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="no",
    )
    trainer = Trainer(
        model,
        args,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),  # labels are the tokens themselves
        train_dataset=train,
        eval_dataset=test,
        processing_class=tokenizer,
    )
    trainer.train()

    perplexity = math.exp(trainer.evaluate()["eval_loss"])
    frequencies = perplexity_of_frequencies(train, test)
    print(
        f"\nPerplexity {perplexity:.0f} on texts it has not seen; {frequencies:.0f} by the frequency of tokens alone."
    )
    for prompt in ("Return a list of", "Raised when"):
        ids = torch.tensor([tokenizer(prompt)["input_ids"]], device=model.device)
        written = model.eval().generate(ids, max_new_tokens=24, do_sample=True, top_k=8, pad_token_id=0)
        print(f"  {tokenizer.decode(written[0], skip_special_tokens=True)!r}")
    return perplexity, frequencies


if __name__ == "__main__":
    main()
