"""`accelerator.state` and `accelerator.gradient_state`, as views on the trainer."""

from __future__ import annotations

import sys
from typing import Any

from ..arguments.process_state import ProcessState
from ..core.tree import has_length


def initialize_accelerate(*, use_cpu: bool) -> None:
    """Make accelerate's own functions work (`gather_object`, its loggers): they need the state of an Accelerator.

    Does nothing if accelerate is not imported, or already has its state.
    """
    accelerate, state = sys.modules.get("accelerate"), sys.modules.get("accelerate.state")
    if accelerate is not None and state is not None and not state.is_initialized():
        accelerate.Accelerator(cpu=use_cpu)  # the state outlives the object


class StateView(ProcessState):
    """Facts about processes and devices."""

    # Plugins configure accelerate's backends, and none is in use.
    deepspeed_plugin = fsdp_plugin = megatron_lm_plugin = dynamo_plugin = parallelism_config = None

    @property
    def _shared_state(self) -> dict[str, Any]:
        return {"num_processes": self.num_processes, "device": self.device, "mixed_precision": self.mixed_precision}

    @property
    def mixed_precision(self) -> str:
        return self._args.mixed_precision


class GradientStateView:
    """The position within the step that is being computed."""

    remainder = -1

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._set_to: bool | None = None

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        """The settings of accumulation. The trainer counts micro-batches itself: of those, accelerate counts one."""
        config: Any = self._trainer.args.accelerator_config
        return {**(config.gradient_accumulation_kwargs or {}), "num_steps": 1}

    @property
    def num_steps(self) -> int:
        return self._trainer.current_gradient_accumulation_steps

    @property
    def sync_gradients(self) -> bool:
        """Whether this is the last micro-batch of its step."""
        if self._set_to is not None:
            return self._set_to
        run = getattr(self._trainer, "_run", None)
        return run is None or run.step.micro_batch is None or run.step.micro_batch.is_last

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        """Override `sync_gradients`, for custom loops."""
        self._set_to = sync_gradients

    @property
    def in_dataloader(self) -> bool:
        return self._trainer.is_in_train

    @property
    def end_of_dataloader(self) -> bool:
        run: Any = getattr(self._trainer, "_run", None)
        if run is None or run.updates.current is None or not has_length(run.updates.loader):
            return False
        return run.updates.current.numbers.stop >= len(run.updates.loader)

    active_dataloader = None
