"""A pair classifier with sentence-transformers."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

model = CrossEncoder(bert("classifier", OUT / "bert"), device="cpu", num_labels=1)
rows = [
    {
        "query": sentence(number),
        "answer": sentence(number, 4) if number % 2 else "bad no bad no",
        "label": float(number % 2),
    }
    for number in range(48)
]
witness = Witness()
trainer = CrossEncoderTrainer(
    model,
    args=CrossEncoderTrainingArguments(**{**SETTINGS, "learning_rate": 1e-2}),
    train_dataset=Dataset.from_list(rows),
    loss=BinaryCrossEntropyLoss(model),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
