"""What transformers has no argument for. By keyword only, so that positions stay those of transformers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Own:
    """What transformers has no argument for."""

    isolate_rng: bool = field(
        default=True,
        metadata={
            "help": "Keep evaluation, saving, logging and callbacks from drawing training's random numbers. "
            "False shares them, exactly as transformers does."
        },
    )
    nonfinite_patience: int = field(
        default=10,
        metadata={
            "help": "A step with a NaN or infinite loss or gradient is skipped and named; after this many in a row "
            "training stops with an error. 0 stops at the first."
        },
    )
    checkpoint_layout: str = field(
        default="ostinato",
        metadata={
            "help": "transformers also writes the files by which transformers itself goes on from a checkpoint: "
            "optimizer.pt, scheduler.pt, rng_state.pth, training_args.bin.",
            "choices": ["ostinato", "transformers"],
        },
    )
