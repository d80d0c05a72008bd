"""LoRA with peft: adapters alone are trained and saved, and a run goes on from them."""

import torch
from ingredients import OUT, SETTINGS, Witness, causal_model, report, sentence, tokenizer
from peft import LoraConfig, get_peft_model
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

words = tokenizer()
rows = [dict(words(sentence(number))) for number in range(64)]
witness = Witness()
SAVING = {"max_steps": 36, "learning_rate": 2e-2, "save_strategy": "steps", "save_steps": 12}


def make(*callbacks):
    model = get_peft_model(causal_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    return Trainer(
        model,
        TrainingArguments(**{**SETTINGS, **SAVING}),
        train_dataset=rows,
        eval_dataset=rows[:8],
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
        processing_class=words,
        callbacks=[*callbacks],
    )


trainer = make()
assert trainer.label_names == ["labels"], trainer.label_names
trainer.train()
trainer.save_model()
for directory in (OUT, OUT / "checkpoint-12"):
    assert (directory / "adapter_model.safetensors").exists()
    assert not (directory / "model.safetensors").exists()
final = {name: value.clone() for name, value in trainer.model.state_dict().items() if "lora" in name}

again = make(witness)
again.train(resume_from_checkpoint=str(OUT / "checkpoint-12"))
for name, value in final.items():
    assert torch.equal(again.model.state_dict()[name], value), name
report(again, witness, resumed=True)
