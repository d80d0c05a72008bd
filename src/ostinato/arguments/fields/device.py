"""On what hardware, and through which launcher's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Device:
    """On what hardware, and through which launcher's settings."""

    use_cpu: bool = field(default=False, metadata={"help": "Stay on the CPU even where there is a GPU."})
    accelerator_config: dict | str | None = field(
        default=None,
        metadata={"help": "Settings in the words of accelerate, as JSON or a JSON file; see AcceleratorConfig."},
    )
    parallelism_config: Any = field(
        default=None, metadata={"help": "How to split the model over devices, as accelerate's ParallelismConfig."}
    )
