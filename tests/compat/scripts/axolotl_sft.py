"""An adapter with axolotl, from a configuration file. It starts processes, which import this file again."""

import json
import os

os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"

from axolotl.cli.config import load_cfg
from axolotl.common.datasets import load_datasets
from axolotl.core.builders import HFCausalTrainerBuilder
from axolotl.train import train
from ingredients import OUT, Witness, causal_model, report, sentence, tokenizer

if __name__ == "__main__":
    causal_model()
    tokenizer().save_pretrained(OUT / "llama")
    rows = OUT / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": sentence(number)}) + "\n" for number in range(64)))
    configuration = OUT / "sft.yaml"
    configuration.write_text(
        json.dumps(
            {
                "base_model": str(OUT / "llama"),
                "output_dir": str(OUT / "run"),
                "datasets": [{"path": str(rows), "ds_type": "json", "type": "completion"}],
                "dataset_prepared_path": str(OUT / "prepared"),
                "adapter": "lora",
                "lora_r": 4,
                "lora_alpha": 8,
                "lora_target_linear": True,
                "lora_mlp_kernel": False,  # these three are for CUDA alone
                "lora_qkv_kernel": False,
                "lora_o_kernel": False,
                "sequence_len": 24,
                "micro_batch_size": 4,
                "gradient_accumulation_steps": 1,
                "max_steps": 24,
                "learning_rate": 2e-2,
                "lr_scheduler": "linear",
                "optimizer": "adamw_torch",
                "logging_steps": 1,
                "save_steps": 12,
                "seed": 7,
                "dataset_num_proc": 1,
                "bf16": False,
                "fp16": False,
                "tf32": False,
                "use_tensorboard": False,
                "special_tokens": {"pad_token": "<pad>"},
            }
        )
    )
    witness = Witness()
    ordinary = HFCausalTrainerBuilder.get_callbacks
    HFCausalTrainerBuilder.get_callbacks = lambda self: [*ordinary(self), witness]
    cfg = load_cfg(str(configuration))
    train(cfg=cfg, dataset_meta=load_datasets(cfg=cfg))
    report(witness.trainer, witness)
