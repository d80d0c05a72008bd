"""accelerate's settings, as transformers accepts them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, NotSupportedError

# The keys of `gradient_accumulation_kwargs`.
ACCUMULATION_OPTIONS = ("num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch")


@dataclass
class AcceleratorConfig:
    """The value of `args.accelerator_config`.

    >>> AcceleratorConfig(non_blocking=True).to_dict()["non_blocking"]
    True
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = True
    non_blocking: bool = False
    gradient_accumulation_kwargs: dict | None = None
    use_configured_state: bool = False

    @classmethod
    def of(cls, given: Any) -> AcceleratorConfig:
        """Convert None, a mapping, the path of a JSON file or a similar dataclass (such as transformers').

        Args:
            given: The settings in one of these forms; settings of this class are returned as they are.

        Returns:
            The settings.

        Raises:
            ConfigError: The file cannot be read, or there are unknown keys.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, (str, Path)) and given:
            return cls.from_json_file(given)
        if is_dataclass(given) and not isinstance(given, type):
            given = asdict(given)
        return cls._from_mapping(given or {})

    @classmethod
    def from_json_file(cls, json_file: str | Path) -> AcceleratorConfig:
        """Read the settings from a JSON file.

        Args:
            json_file: The path of the file.

        Returns:
            The settings.

        Raises:
            ConfigError: The file cannot be read, is not JSON, or has unknown keys.
        """
        try:
            content = json.loads(Path(json_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                what=f"accelerator_config={str(json_file)!r} could not be read",
                why=str(error),
                fix="pass a dict, a string of JSON, or the path of a JSON file",
            ) from error
        return cls._from_mapping(content)

    @classmethod
    def _from_mapping(cls, content: Any) -> AcceleratorConfig:
        known = [field.name for field in fields(cls)]
        if callable(content):
            raise NotSupportedError(
                what=f"Tried passing in a callable to `accelerator_config`: {content!r}",
                why="settings are values, and a class or a function has none",
                fix=f"pass {getattr(content, '__name__', 'it')}(...), or a dict with some of the keys {known}",
            )
        if not isinstance(content, Mapping):
            raise ConfigError(
                what=f"accelerator_config={content!r} is not a dict",
                why=f"it is a {type(content).__name__}",
                fix=f"pass a dict with some of the keys {known}",
            )
        unknown = sorted(set(content) - set(known))
        if unknown:
            raise ConfigError(
                what=f"accelerator_config has unknown keys: {', '.join(map(repr, unknown))}",
                why=f"the known ones are {', '.join(known)}",
                fix="leave them out",
            )
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dict, without `use_configured_state`, which belongs to the process."""
        content = asdict(self)
        del content["use_configured_state"]
        return content
