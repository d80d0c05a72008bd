"""Two towers with sentence-transformers."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss

model = SentenceTransformer(bert("encoder", OUT / "bert"), device="cpu")
rows = [{"anchor": sentence(number), "positive": sentence(number, 4)} for number in range(48)]
witness = Witness()
trainer = SentenceTransformerTrainer(
    model,
    args=SentenceTransformerTrainingArguments(**SETTINGS, eval_strategy="steps", eval_steps=10),
    train_dataset=Dataset.from_list(rows),
    eval_dataset=Dataset.from_list(rows[:8]),
    loss=MultipleNegativesRankingLoss(model),
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
