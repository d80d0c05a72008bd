"""An adapter with ms-swift, from the options of its command line."""

import json

from ingredients import OUT, SETTINGS, Witness, causal_model, report, sentence, tokenizer
from swift.arguments import SftArguments
from swift.pipelines import SwiftSft

causal_model()
tokenizer().save_pretrained(OUT / "llama")
file = OUT / "rows.jsonl"
rows = [
    {
        "messages": [
            {"role": "user", "content": sentence(number, 3)},
            {"role": "assistant", "content": sentence(number + 9, 3)},
        ]
    }
    for number in range(64)
]
file.write_text("".join(json.dumps(row) + "\n" for row in rows))
witness = Witness()


class Watched(SwiftSft):
    """The pipeline as it is, with one callback more."""

    def train(self, trainer):
        trainer.add_callback(witness)
        return super().train(trainer)


settings = {name: value for name, value in SETTINGS.items() if name not in ("use_cpu", "disable_tqdm")}
Watched(
    SftArguments(
        **{**settings, "learning_rate": 2e-2, "report_to": ["none"]},
        model=str(OUT / "llama"),
        model_type="llama",
        template="dummy",
        dataset=[str(file)],
        tuner_type="lora",
        torch_dtype="float32",
        max_length=24,
        split_dataset_ratio=0,
        dataset_num_proc=1,
        dataloader_num_workers=0,
        add_version=False,
        use_hf=True,
    )
).main()
report(witness.trainer, witness)
