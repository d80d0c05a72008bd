"""Fine-tune a text classifier, judged by a metric of our own.

    python examples/classifier.py

Which part of Python's standard library is a docstring from? The texts are read from the Python that runs this, the
tokenizer is trained on them, so nothing is downloaded. Half a minute on one core.
"""

import ast
import random
import sysconfig
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import DistilBertConfig, DistilBertForSequenceClassification, PreTrainedTokenizerFast

from ostinato import Trainer, TrainingArguments, set_seed

PACKAGES = ["asyncio", "email", "logging", "unittest"]


def load_texts():
    """What the functions and classes of each package say about themselves, with the number of the package."""
    rows = []
    for label, package in enumerate(PACKAGES):
        for file in sorted(Path(sysconfig.get_paths()["stdlib"], package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                    rows.append({"text": ast.get_docstring(node), "labels": label})
    random.Random(0).shuffle(rows)
    return rows[400:], rows[200:400], rows[:200]


def train_tokenizer(texts) -> PreTrainedTokenizerFast:
    """Pieces of words, learned from the training texts alone."""
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]"]
    inner.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", model_max_length=48)


def make_model(words: int) -> DistilBertForSequenceClassification:
    """Small and untrained, to need no download; with one, it is `from_pretrained(name, num_labels=4)`."""
    size = {"dim": 96, "hidden_dim": 192, "n_layers": 1, "n_heads": 4, "max_position_embeddings": 48}
    names = dict(enumerate(PACKAGES))
    return DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=words, num_labels=len(PACKAGES), id2label=names, dropout=0.2, **size)
    )


def judge(prediction):
    """Packages differ in size, so beside the accuracy: F1 of each package, and their mean."""
    answers, truth = prediction.predictions.argmax(-1), prediction.label_ids
    found = {"accuracy": float((answers == truth).mean())}
    for label, package in enumerate(PACKAGES):
        both = ((answers == label) & (truth == label)).sum()
        found[f"f1_{package}"] = float(2 * both / max((answers == label).sum() + (truth == label).sum(), 1))
    return {**found, "f1": float(np.mean([found[f"f1_{package}"] for package in PACKAGES]))}


def main(epochs: int = 6) -> tuple[float, float]:
    """Train, keep the best, show some answers; returns the accuracy and that of always naming the largest package."""
    set_seed(42)
    texts = load_texts()
    tokenizer = train_tokenizer(row["text"] for row in texts[0])
    train_rows, eval_rows, test_rows = (
        [{**tokenizer(row["text"], truncation=True), "labels": row["labels"]} for row in part] for part in texts
    )
    args = TrainingArguments(
        output_dir="runs/classifier",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        learning_rate=1e-3,
        logging_strategy="epoch",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
    )
    trainer = Trainer(
        make_model(len(tokenizer)),
        args,
        train_dataset=train_rows,
        eval_dataset=eval_rows,  # decides which epoch is the best; what is told in the end is of other texts
        processing_class=tokenizer,  # pads the texts of a batch to one length
        compute_metrics=judge,
    )
    trainer.train()

    result = trainer.predict(test_rows)
    accuracy = result.metrics["test_accuracy"]
    largest = max(sum(row["labels"] == label for row in test_rows) for label in range(len(PACKAGES))) / len(test_rows)
    print(f"\n{accuracy:.1%} of {len(test_rows)} unseen docstrings put into the right package;")
    print(f"{largest:.1%} would be right by always naming the largest. F1 of each:")
    print("  " + ", ".join(f"{package} {result.metrics[f'test_f1_{package}']:.2f}" for package in PACKAGES))
    for row, logits in zip(texts[2][:5], result.predictions):
        answer, truth = PACKAGES[logits.argmax()], PACKAGES[row["labels"]]
        print(f"  {'✓' if answer == truth else '✗'} {answer:8} {row['text'].splitlines()[0][:70]}")
    return accuracy, largest


if __name__ == "__main__":
    main()
