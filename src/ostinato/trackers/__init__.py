"""Experiment trackers: thin callbacks over one small interface (sink.py).

Every library is optional, and imported where it is used. Modules load on use; the names below are also those of
`transformers.integrations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import registry

__getattr__ = load_on_use(
    __name__,
    {
        "base": ["TrackerCallback", "rewrite_logs"],
        "clearml": ["ClearMLCallback"],
        "codecarbon": ["CodeCarbonCallback"],
        "comet": ["CometCallback"],
        "dvclive": ["DVCLiveCallback"],
        "files": ["CsvCallback", "JsonlCallback"],
        "mlflow": ["MLflowCallback"],
        "neptune": ["NeptuneCallback"],
        "registry": [
            "INTEGRATION_TO_CALLBACK",
            "find_callback_class",
            "get_available_reporting_integrations",
            "get_reporting_integration_callbacks",
            "hp_params",
            "is_clearml_available",
            "is_codecarbon_available",
            "is_comet_available",
            "is_dvclive_available",
            "is_mlflow_available",
            "is_neptune_available",
            "is_optuna_available",
            "is_swanlab_available",
            "is_tensorboard_available",
            "is_trackio_available",
            "is_wandb_available",
        ],
        "sink": ["RunInfo", "Sink"],
        "swanlab": ["SwanLabCallback"],
        "tensorboard": ["TensorBoardCallback"],
        "trackio": ["TrackioCallback"],
        "wandb": ["WandbCallback"],
    },
)
