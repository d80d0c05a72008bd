"""Two towers with sentence-transformers, on several data sets with a loss each."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
from sentence_transformers.training_args import BatchSamplers, MultiDatasetBatchSamplers

model = SentenceTransformer(bert("encoder", OUT / "bert"), device="cpu")
pairs = Dataset.from_list([{"anchor": sentence(number), "positive": sentence(number, 4)} for number in range(48)])
scored = Dataset.from_list(
    [
        {"one": sentence(number), "other": sentence(number + number % 5, 4), "score": 1 - number % 5 / 4}
        for number in range(32)
    ]
)
witness = Witness()
trainer = SentenceTransformerTrainer(
    model,
    args=SentenceTransformerTrainingArguments(
        **SETTINGS,
        eval_strategy="steps",
        eval_steps=10,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
    ),
    train_dataset={"pairs": pairs, "scored": scored},
    eval_dataset={"pairs": pairs.select(range(8)), "scored": scored.select(range(8))},
    loss={"pairs": MultipleNegativesRankingLoss(model), "scored": CoSENTLoss(model)},
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
