"""A forecaster with chronos: its data sets make batches, its trainer makes the loaders."""

import numpy as np
import torch
from chronos import Chronos2Pipeline
from chronos.chronos2 import Chronos2Model
from chronos.chronos2.config import Chronos2CoreConfig
from ingredients import OUT, Witness, report
from transformers import set_seed

set_seed(3)
config = Chronos2CoreConfig(
    d_model=16,
    d_kv=8,
    d_ff=32,
    num_layers=2,
    num_heads=2,
    chronos_config={
        "context_length": 64,
        "input_patch_size": 8,
        "input_patch_stride": 8,
        "output_patch_size": 8,
        "quantiles": [0.1, 0.5, 0.9],
        "use_reg_token": True,
        "use_arcsinh": True,
        "max_output_patches": 4,
        "time_encoding_scale": 64,
    },
)
pipeline = Chronos2Pipeline(Chronos2Model(config))
series = [torch.tensor(np.sin(np.arange(120) / (3 + number)), dtype=torch.float32) for number in range(12)]


witness = Witness()
pipeline.fit(
    series,
    prediction_length=8,
    validation_inputs=series,
    learning_rate=1e-2,
    num_steps=24,
    batch_size=12,
    output_dir=OUT,
    callbacks=[witness],
    logging_steps=1,
    seed=7,
    eval_steps=12,
    save_steps=12,
    use_cpu=True,
    report_to="none",
)
report(witness.trainer, witness)
