"""LoRA: a frozen language model with small trained matrices beside it; only these are saved."""

import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(42)
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0
)
base = LlamaForCausalLM(config)
untouched = {name: value.clone() for name, value in base.state_dict().items()}
lora = LoraConfig(
    task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]
)
model = get_peft_model(base, lora)
print(model.get_nb_trainable_parameters())

rows = [{"input_ids": row, "labels": row} for row in torch.randint(1, 32, (32, 12))]
args = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=4,
    num_train_epochs=2,
    learning_rate=2e-2,
    logging_steps=4,
    save_strategy="epoch",
    eval_strategy="epoch",
)
trainer = Trainer(model=model, args=args, train_dataset=rows[:24], eval_dataset=rows[24:])
trainer.train()
adapter = Path(sys.argv[1]) / "adapter"
model.save_pretrained(adapter)

set_seed(42)
again = PeftModel.from_pretrained(LlamaForCausalLM(config), adapter)
with torch.no_grad():
    batch = torch.stack([row["input_ids"] for row in rows[24:]])
    print(torch.equal(again.eval()(batch).logits, trainer.model.eval()(batch).logits))
print(all(torch.equal(value, untouched[name]) for name, value in again.unload().state_dict().items()))
