"""Few examples with setfit, whose body is trained by sentence-transformers' trainer."""

from datasets import Dataset
from ingredients import OUT, Witness, bert, report, sentence
from sentence_transformers import SentenceTransformer
from setfit import SetFitModel, Trainer, TrainingArguments

directory = OUT / "body"
SentenceTransformer(bert("encoder", OUT / "bert"), device="cpu").save(str(directory))
model = SetFitModel.from_pretrained(str(directory), device="cpu")
rows = [{"text": sentence(number) if number % 2 else "bad no bad no", "label": number % 2} for number in range(16)]
arguments = TrainingArguments(
    output_dir=str(OUT),
    batch_size=4,
    num_epochs=1,
    max_steps=24,
    body_learning_rate=2e-3,
    logging_steps=1,
    report_to="none",
    save_strategy="no",
    seed=7,
)
witness = Witness()
trainer = Trainer(model, args=arguments, train_dataset=Dataset.from_list(rows), callbacks=[witness])
trainer.train()
report(trainer.st_trainer, witness)
