"""A search with Ray that waits to be killed during its second trial: `ray_program.py OUTPUT_DIR`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import ray

from ostinato import TrainerCallback
from tests.support.searches import RATES, build_trainer


class Wait(TrainerCallback):
    """Waits in the second trial after its first checkpoint, once."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark = Path(args.output_dir, "waits")
        if state.trial_name == "run-1" and state.global_step == 5 and not mark.exists():
            mark.touch()
            time.sleep(600)


def main(directory: Path) -> None:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    trainer = build_trainer(directory, callbacks=[Wait()], save_strategy="epoch")
    best = trainer.hyperparameter_search(RATES, n_trials=3, backend="ray")
    print("BEST", best.run_id, best.objective, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
