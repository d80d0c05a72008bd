"""Ray Train: report checkpoints once, where they are, and go on when a worker was lost.

def train_on_worker(config):
    args = TrainingArguments(config["out"], save_steps=100)  # on a disk that all workers share
    trainer = Trainer(model, args, train_dataset=rows, callbacks=[RayReportCallback()])
    trainer.train(resume_from_checkpoint=find_checkpoint(config["out"]))

TorchTrainer(train_on_worker, scaling_config=ScalingConfig(num_workers=2), ...).fit()

Ray's own `RayTrainReportCallback` and `prepare_trainer` work as well, and copy every checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..callbacks.events import TrainerCallback
from ..checkpoint.run_directory import RunDirectory
from ..core.notices import note
from ..core.package_import import Package, import_from
from ..core.state import TrainerControl, TrainerState

__all__ = ["RayReportCallback", "find_checkpoint"]

_PACKAGE = Package("ray", 'pip install "ostinato[ray]"')


class RayReportCallback(TrainerCallback):
    """Report every checkpoint to Ray Train, with the last logged numbers.

    The first worker reports the directory that the checkpoint was written to; nothing is copied. `output_dir` has to
    be on a disk that all workers share, as `storage_path` of Ray has.

    >>> Trainer(..., callbacks=[RayReportCallback()])  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._report = import_from("ray.train.report", _PACKAGE, needed_by="RayReportCallback")

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        checkpoint = import_from("ray.train.Checkpoint", _PACKAGE, needed_by="RayReportCallback")
        modes = import_from("ray.train.CheckpointUploadMode", _PACKAGE, needed_by="RayReportCallback")
        directory = Path(args.output_dir).absolute() / f"checkpoint-{state.global_step}"
        numbers: dict[str, Any] = {}
        for entry in state.log_history:
            numbers.update(entry)
        # All workers have to report; those without a checkpoint report numbers alone.
        self._report(
            {**numbers, "step": state.global_step},
            checkpoint=checkpoint.from_directory(str(directory)) if state.is_world_process_zero else None,
            checkpoint_upload_mode=modes.NO_UPLOAD,
        )


def find_checkpoint(output_dir: str) -> str | None:
    """Return the checkpoint to go on from: the newest whole one in `output_dir`, or Ray's if that is newer.

    A worker that is lost right after a report leaves Ray without that report, but the checkpoint is whole.

    Args:
        output_dir: The directory of the run, on a disk that all workers share.

    Returns:
        Its directory, for `train(resume_from_checkpoint=...)`; None if the run begins.

    >>> trainer.train(resume_from_checkpoint=find_checkpoint(args.output_dir))  # doctest: +SKIP
    """
    get = import_from("ray.train.get_checkpoint", _PACKAGE, needed_by="find_checkpoint")
    reported, own = get(), RunDirectory().find_newest_whole(Path(output_dir))
    given = None if reported is None else Path(reported.path)
    if own is None or (given is not None and _read_step(given) > _read_step(own)):
        return None if given is None else str(given)
    note(f"going on from {own.name}, the newest whole checkpoint in {output_dir}")
    return str(own)


def _read_step(checkpoint: Path) -> int:
    return int(word) if (word := checkpoint.name.rpartition("-")[2]).isdigit() else -1
