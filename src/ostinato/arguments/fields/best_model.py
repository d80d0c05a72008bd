"""Which of the evaluated models is the best one, and whether it is taken in the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Best:
    """Which of the evaluated models is the best one, and whether it is taken in the end."""

    load_best_model_at_end: bool = field(
        default=False, metadata={"help": "After training, go back to the weights that evaluated best."}
    )
    metric_for_best_model: str | None = field(
        default=None,
        metadata={"help": "The evaluation metric that says which model is best, with or without `eval_`."},
    )
    greater_is_better: bool | None = field(
        default=None,
        metadata={"help": "Whether a higher metric is a better one. Not given: yes, unless its name ends in loss."},
    )
