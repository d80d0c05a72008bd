"""Two towers with sentence-transformers, looked at by an evaluator alone: there are no rows to evaluate on."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.losses import CoSENTLoss

SAVING = {"eval_strategy": "steps", "eval_steps": 8, "save_strategy": "steps", "save_steps": 8}
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "eval_pairs_spearman_cosine", "save_total_limit": 1}

model = SentenceTransformer(bert("encoder", OUT / "bert"), device="cpu")
rows = [
    {"one": sentence(number), "other": sentence(number + number % 5, 4), "score": 1 - number % 5 / 4}
    for number in range(48)
]
columns = {name: [row[name] for row in rows[:12]] for name in rows[0]}
witness = Witness()
trainer = SentenceTransformerTrainer(
    model,
    args=SentenceTransformerTrainingArguments(**{**SETTINGS, **SAVING, **BEST}),
    train_dataset=Dataset.from_list(rows),
    loss=CoSENTLoss(model),
    evaluator=EmbeddingSimilarityEvaluator(columns["one"], columns["other"], columns["score"], name="pairs"),
    callbacks=[witness],
)
trainer.train()
trainer.evaluate()
report(trainer, witness)
