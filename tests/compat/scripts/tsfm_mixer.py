"""A forecaster with granite-tsfm: two learning rates, and a callback of its own."""

import numpy as np
import pandas as pd
from ingredients import SETTINGS, Witness, report
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments, set_seed
from tsfm_public import ForecastDFDataset, TrackingCallback
from tsfm_public.models.tinytimemixer import TinyTimeMixerConfig, TinyTimeMixerForPrediction

set_seed(3)
frame = pd.DataFrame({"time": np.arange(120), "value": np.sin(np.arange(120) / 5), "id": 0})
rows = ForecastDFDataset(
    frame, id_columns=["id"], timestamp_column="time", target_columns=["value"], context_length=32, prediction_length=8
)
model = TinyTimeMixerForPrediction(
    TinyTimeMixerConfig(
        context_length=32,
        prediction_length=8,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_layers=2,
        decoder_num_layers=2,
        decoder_d_model=16,
        num_input_channels=1,
    )
)
optimizer = AdamW(model.parameters(), lr=2e-3)
witness = Witness()
trainer = Trainer(
    model,
    TrainingArguments(
        **{**SETTINGS, "max_steps": 30, "save_strategy": "steps"},
        eval_strategy="steps",
        eval_steps=10,
        save_steps=10,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
    ),
    train_dataset=rows,
    eval_dataset=rows,
    callbacks=[witness, TrackingCallback(), EarlyStoppingCallback(early_stopping_patience=5)],
    optimizers=(optimizer, OneCycleLR(optimizer, 2e-3, total_steps=30)),
)
trainer.train()
trainer.evaluate()
report(trainer, witness)
