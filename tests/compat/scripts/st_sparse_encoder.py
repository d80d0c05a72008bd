"""A sparse encoder with sentence-transformers."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from sentence_transformers.sparse_encoder import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

model = SparseEncoder(bert("masked", OUT / "bert"), device="cpu")
rows = [{"anchor": sentence(number), "positive": sentence(number, 4)} for number in range(48)]
loss = SpladeLoss(
    model, SparseMultipleNegativesRankingLoss(model), document_regularizer_weight=3e-5, query_regularizer_weight=5e-5
)
witness = Witness()
trainer = SparseEncoderTrainer(
    model,
    args=SparseEncoderTrainingArguments(**SETTINGS),
    train_dataset=Dataset.from_list(rows),
    loss=loss,
    callbacks=[witness],
)
trainer.train()
trainer.save_model()
report(trainer, witness)
