"""The default callback, which decides when to log, evaluate, save and stop."""

from __future__ import annotations

from typing import Any

from ..core.choices import IntervalStrategy, SaveStrategy
from ..core.state import TrainerControl, TrainerState
from .events import QuietCallback


class DefaultFlowCallback(QuietCallback):
    """Turn `*_strategy` and `*_steps` into requests on the control. The trainer adds it as the first callback."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        step, is_last = state.global_step, state.global_step >= state.max_steps
        if step == 1 and args.logging_first_step:
            control.should_log = True
        if args.logging_strategy == IntervalStrategy.STEPS and step % state.logging_steps == 0:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.STEPS and step >= args.eval_delay:
            if is_last or step % state.eval_steps == 0:
                control.should_evaluate = True
        if args.save_strategy == SaveStrategy.STEPS:
            if is_last or (state.save_steps > 0 and step % state.save_steps == 0):
                control.should_save = True
        if is_last:
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        if args.logging_strategy == IntervalStrategy.EPOCH:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.EPOCH and state.epoch >= args.eval_delay:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.EPOCH:
            control.should_save = True
        return control
