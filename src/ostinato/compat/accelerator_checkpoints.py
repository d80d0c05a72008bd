"""`accelerator.save_state` and `load_state`: what is trained, in a directory that the caller names.

The directory holds the weights, the optimizer, the schedule, the scale of gradients, the random streams and the
registered objects. It is no checkpoint of a run: the position in the data and the callbacks are not in it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ..arguments.settings import SaveSettings
from ..checkpoint import save_parts
from ..checkpoint.atomic import atomic_directory, verify
from ..checkpoint.file_names import OPTIMIZER_NAME
from ..checkpoint.layouts import OwnCheckpoint
from ..checkpoint.tensors import read_tree, write_tensors, write_tree
from ..core.errors import CheckpointError, ConfigError
from ..core.notices import note_once

Hook = Callable[..., Any]
_OWN_FILES = re.compile(r"MANIFEST\.json|(model|optimizer|scheduler|scaler|rng|object)[-.\w]*\.(json|safetensors)")


class Stateful(Protocol):
    """Any object with a state that can be saved and restored."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class RemovableHook:
    """A registered hook, which `remove` takes out again."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class CheckpointFunctions:
    """The names of accelerate that save and load what is trained; every process calls them."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._custom_objects: list[Stateful] = []
        self._save_hooks: list[Hook] = []
        self._load_hooks: list[Hook] = []

    def register_for_checkpointing(self, *objects: Stateful) -> None:
        """Add objects, whose state is saved and loaded in this order."""
        for one in objects:
            if not (callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))):
                raise ConfigError(
                    what=f"a {type(one).__name__} cannot be registered for checkpointing",
                    why="its state is saved by state_dict() and restored by load_state_dict()",
                    fix="give it these two methods",
                )
        self._custom_objects.extend(objects)

    def register_save_state_pre_hook(self, hook: Hook) -> RemovableHook:
        """Call `hook(models, weights, directory)` before a state is saved; weights that it removes are not saved."""
        return RemovableHook(self._save_hooks, hook)

    def register_load_state_pre_hook(self, hook: Hook) -> RemovableHook:
        """Call `hook(models, directory)` before a state is loaded; models that it removes are not loaded."""
        return RemovableHook(self._load_hooks, hook)

    def save_state(self, output_dir: str | Path, safe_serialization: bool = True, **kwargs: Any) -> str:
        """Write what is trained to a directory, which appears whole; other files in it stay.

        Args:
            output_dir: The directory. Accelerate may take one from a project, and none is configured here.
            safe_serialization: Weights are always written as safetensors.
            **kwargs: Options of accelerate for files, without effect.

        Returns:
            The directory.
        """
        trainer, target = self._trainer, Path(output_dir).expanduser()
        leads = SaveSettings.of(trainer.args).writes_here
        with atomic_directory(target, leader=leads, barrier=trainer.strategy.barrier) as directory:
            if self._are_weights_kept(directory) and (leads or trainer.strategy.is_sharded):
                save_parts.write_weights(trainer, directory, write_tensors, as_evaluated=False)
            if trainer.optimizer is not None:
                save_parts.save_optimizer_and_scheduler(trainer, directory)
            save_parts.save_scaler(trainer, directory)
            save_parts.save_random_state(trainer, directory)
            if leads:
                for number, one in enumerate(self._custom_objects):
                    write_tree({"state_dict": one.state_dict()}, directory, _name_object(number))
                _copy_other_files(target, directory)
        return str(output_dir)

    def _are_weights_kept(self, directory: Path) -> bool:
        if not self._save_hooks:
            return True
        trainer = self._trainer
        weights = [trainer.strategy.model_state(trainer.model) or trainer.model.state_dict()]
        for hook in self._save_hooks:
            hook([trainer.model], weights, str(directory))
        return bool(weights)

    def load_state(self, input_dir: str | Path, **kwargs: Any) -> None:
        """Restore what `save_state` has written.

        Args:
            input_dir: The directory.
            **kwargs: Options of accelerate for files, without effect.
        """
        trainer, directory = self._trainer, Path(input_dir).expanduser()
        verify(directory)
        self._check_objects(directory)
        saved, models = OwnCheckpoint(directory), [trainer.model]
        for hook in self._load_hooks:
            hook(models, str(input_dir))
        if models:
            saved.load_weights(trainer.model, trainer.strategy.load_model_state)
        if not (directory / OPTIMIZER_NAME).exists():
            note_once(f"{directory} has no state of an optimizer: there was none when it was saved")
        elif trainer.optimizer is None:
            note_once(f"{OPTIMIZER_NAME} of {directory} is not loaded: the trainer has no optimizer yet")
        else:
            saved.load_training_parts(
                optimizer=trainer.optimizer,
                scheduler=trainer.lr_scheduler,
                load=trainer.strategy.load_optimizer_state,
            )
        saved.load_scaler(getattr(trainer.precision, "scaler", None))
        for number, one in enumerate(self._custom_objects):
            one.load_state_dict(read_tree(directory, _name_object(number))["state_dict"])
        saved.load_random_state(trainer.args.process_index, trainer.args.world_size)

    def _check_objects(self, directory: Path) -> None:
        found = len(list(directory.glob(f"{_name_object('*')}.json")))
        if found != len(self._custom_objects):
            raise CheckpointError(
                what=f"{directory} holds the state of {found} registered objects",
                why=f"{len(self._custom_objects)} are registered now, and states are matched by their order",
                fix="register the same objects, in the same order, before loading",
            )


def _copy_other_files(target: Path, scratch: Path) -> None:
    """Copy what other code has written into a directory that is about to be replaced."""
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        place = scratch / name
        if path.is_file() and not _OWN_FILES.fullmatch(name) and not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def _name_object(number: int | str) -> str:
    return f"object-{number}"
