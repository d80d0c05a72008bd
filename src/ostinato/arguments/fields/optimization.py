"""How weights are updated."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import OptimizerNames


@dataclass
class Optim:
    """How weights are updated."""

    optim: OptimizerNames | str = field(
        default="adamw_torch_fused", metadata={"help": "The name of the optimizer that updates the weights."}
    )
    optim_args: str | None = field(
        default=None, metadata={"help": "Further settings of the optimizer, as `name=value,name=value`."}
    )
    weight_decay: float = field(
        default=0.0, metadata={"help": "How strongly weights are pulled to 0; biases and norms are left alone."}
    )
    adam_beta1: float = field(
        default=0.9, metadata={"help": "How much of the running mean of gradients an Adam-like step keeps."}
    )
    adam_beta2: float = field(
        default=0.999, metadata={"help": "How much of the running mean of squared gradients an Adam-like step keeps."}
    )
    adam_epsilon: float = field(
        default=1e-8, metadata={"help": "Added to the divisor of an Adam-like step, so that it is never 0."}
    )
    optim_target_modules: None | str | list[str] = field(  # noqa: RUF036 - see report_to in log.py
        default=None, metadata={"help": "The modules that a low-rank optimizer (GaLore, APOLLO) treats specially."}
    )
