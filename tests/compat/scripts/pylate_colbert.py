"""Late interaction with pylate, on sentence-transformers' trainer."""

from datasets import Dataset
from ingredients import OUT, SETTINGS, Witness, bert, report, sentence
from pylate import losses, models, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

model = models.ColBERT(
    model_name_or_path=bert("encoder", OUT / "bert"),
    device="cpu",
    embedding_size=8,
    query_length=16,
    document_length=16,
)
rows = [
    {"query": sentence(number), "positive": sentence(number, 4), "negative": sentence(number + 5, 4)}
    for number in range(48)
]
witness = Witness()
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(**SETTINGS),
    train_dataset=Dataset.from_list(rows),
    loss=losses.Contrastive(model=model),
    data_collator=utils.ColBERTCollator(model.tokenize),
    callbacks=[witness],
)
trainer.train()
report(trainer, witness)
