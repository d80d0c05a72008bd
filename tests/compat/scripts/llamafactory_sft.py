"""An adapter with LLaMA-Factory, from the options of its command line.

It imports torchaudio, of which no build goes with torch's CPU build; text needs nothing of it, so an empty module of
that name is enough.
"""

import importlib.machinery
import json
import os
import sys
import types

os.environ["DISABLE_VERSION_CHECK"] = "1"  # it has pins of its own for transformers
sys.modules["torchaudio"] = types.ModuleType("torchaudio")
sys.modules["torchaudio"].__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)

from ingredients import OUT, SETTINGS, Witness, causal_model, report, sentence, tokenizer  # noqa: E402
from llamafactory.train.tuner import run_exp  # noqa: E402

causal_model()
tokenizer().save_pretrained(OUT / "llama")
data = OUT / "data"
data.mkdir()
rows = [{"instruction": sentence(number, 3), "input": "", "output": sentence(number + 9, 3)} for number in range(64)]
(data / "rows.json").write_text(json.dumps(rows))
(data / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
witness = Witness()
run_exp(
    {
        **SETTINGS,
        "learning_rate": 2e-2,
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": str(OUT / "llama"),
        "finetuning_type": "lora",
        "lora_target": "all",
        "template": "empty",
        "dataset": "rows",
        "dataset_dir": str(data),
        "cutoff_len": 24,
        "packing": True,
        "overwrite_cache": True,
        "preprocessing_num_workers": 1,
    },
    callbacks=[witness],
)
report(witness.trainer, witness)
