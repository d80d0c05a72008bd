"""The model's own files: `model.safetensors`, what `save_pretrained` adds to it, and adapters.

A model that has its own method for saving (transformers, PEFT) uses it; `from_pretrained` reads the result. Any other
module is written with tied weights once, and the names that share them are in the file's metadata. Reading is strict:
every weight of the model comes from the checkpoint, every weight of the checkpoint goes into the model. A model with a
`load_state_dict` or hooks of its own may accept other names and shapes than it has.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from ..core.compiled_model import get_uncompiled
from ..core.errors import CheckpointError, NotSupportedError
from ..core.notices import note_once
from ..core.random import preserve_rng
from . import io as files
from .distributed_tensors import is_distributed, open_tensors
from .file_names import ADAPTER_WEIGHTS_NAME, CONFIG_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME, is_plain_name
from .intercept_save import intercept_tensors
from .tensors import TensorWriter, check_storable, identify_memory, read_tensors, write_tensors
from .training_state import LoadState

ALIASES = "ostinato.aliases"

_MAX_SHOWN = 10  # names in an error message


def save_model(
    model: nn.Module,
    directory: Path,
    *,
    state_dict: Mapping[str, Any] | None = None,
    processing_class: Any = None,
    write: TensorWriter = write_tensors,
) -> None:
    """Write the weights, and what is needed to load them elsewhere, into a directory.

    `state_dict` replaces the model's own, for weights that were gathered from several processes. `write` receives the
    tensors of each file; those of a model that saves itself, if its way of saving is known.

    >>> save_model(model, Path("out"), processing_class=tokenizer)  # doctest: +SKIP
    """
    directory, model = Path(directory), get_uncompiled(model)
    directory.mkdir(parents=True, exist_ok=True)
    saves_itself = _find_method(model, "save_pretrained")
    with hide_progress_bars():
        if saves_itself is None:
            _save_module(model.state_dict() if state_dict is None else state_dict, directory, write)
        else:
            given = {} if state_dict is None else {"state_dict": dict(state_dict)}
            with nullcontext() if write is write_tensors else intercept_tensors(saves_itself, write):
                saves_itself(directory, **given)
        save_processing = _find_method(processing_class, "save_pretrained")
        if save_processing is not None:
            save_processing(directory)


def load_leniently(model: nn.Module, state: Mapping[str, Any]) -> Any:
    """Load a state of which tied weights may be absent; return the result of `load_state_dict`."""
    return model.load_state_dict(state, strict=False)


def load_weights(model: nn.Module, directory: Path, load: LoadState = load_leniently) -> None:
    """Fill the model from a directory; raise `CheckpointError` unless everything fits.

    The model is unchanged then, unless it converts weights by itself. `load` loads the state into the model, for
    models whose weights are distributed over processes.

    >>> load_weights(model, Path("out/checkpoint-20"))  # doctest: +SKIP
    """
    directory, model = Path(directory), get_uncompiled(model)
    if getattr(model, "peft_config", None):
        _load_adapters(model, directory)
        return
    found = _find_weights(directory)
    expected = model.state_dict()
    mismatch = _compare(model, expected, found)
    if not mismatch:
        _check_ties(expected, found)
        _fill(model, _read_all(found, expected), found, load)
        return
    if _converts_weights(model) and _load_converting(model, expected, found, load):
        return
    converted = _read_converted(model, directory, found.dtypes.values())
    if converted is None:
        raise mismatch.build_error(directory)
    model.load_state_dict(converted, strict=True)


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Disable the progress bars of transformers and of the hub's client, inside the block."""
    transformers = sys.modules.get("transformers.utils.logging")
    hub = sys.modules.get("huggingface_hub.utils")
    if transformers is None or hub is None:
        yield
        return
    shown = transformers.is_progress_bar_enabled()
    hub_shown = not hub.are_progress_bars_disabled()
    with warnings.catch_warnings():  # the client warns where an environment variable already decides
        warnings.simplefilter("ignore")
        transformers.disable_progress_bar()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if shown:
                transformers.enable_progress_bar()
            # Both switches above also change the client's; it is restored here.
            (hub.enable_progress_bars if hub_shown else hub.disable_progress_bars)()


def _find_method(owner: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(owner, name, None)
    return method if callable(method) else None


def _save_module(state: Mapping[str, Any], directory: Path, write: TensorWriter) -> None:
    kept: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise CheckpointError(
                what=f"cannot save {name!r} of the model",
                why=f"it is a {type(value).__name__}, not a tensor",
                fix="let get_extra_state() return a tensor",
            )
        if value.device.type != "meta":  # a tensor that stands for one in other processes
            check_storable(value, f"{name!r} of the model")
        owner = first.setdefault(identify_memory(value), name)
        if owner == name:
            kept[name] = value
        else:
            aliases[name] = owner
    write(directory / WEIGHTS_NAME, kept, {"format": "pt", ALIASES: json.dumps(aliases)})


@dataclass
class _FoundWeights:
    """The contents of the headers of the weight files, before any weight is read."""

    directory: Path
    files: dict[str, Path]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, torch.dtype | None]
    aliases: dict[str, str]


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def are_divided(directory: Path) -> bool:
    """Return whether there are shards and an index of them, and no file with all weights."""
    return (directory / WEIGHTS_INDEX_NAME).is_file() and not os.path.lexists(directory / WEIGHTS_NAME)


def _find_weights(directory: Path) -> _FoundWeights:
    found = _FoundWeights(directory, {}, {}, {}, {})
    for path, names in _list_weight_files(directory).items():
        _read_header(path, names, found)
    return found


def _list_weight_files(directory: Path) -> dict[Path, set[str] | None]:
    """Return the files to read, each with the names that the index lists for it (None: all that it has)."""
    if (directory / WEIGHTS_NAME).exists():
        return {directory / WEIGHTS_NAME: None}
    index_path = directory / WEIGHTS_INDEX_NAME
    if not index_path.exists():
        raise _build_no_weights_error(directory)
    index = files.read_json(index_path)
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not table:
        raise files.build_broken_error(index_path, f"{index_path.name} has no weight_map")
    shards: dict[Path, set[str] | None] = {}
    for name, file_name in table.items():
        if not is_plain_name(file_name):
            raise files.build_broken_error(
                index_path, f"{index_path.name} names {file_name!r}, which leads out of the directory"
            )
        names = shards.setdefault(directory / file_name, set())
        assert names is not None
        names.add(name)
    return shards


def _build_no_weights_error(directory: Path) -> CheckpointError:
    pickles = sorted(path.name for path in directory.glob("*.bin")) if directory.is_dir() else []
    return CheckpointError(
        what=f"{directory} has no weights that can be read",
        why=f"neither {WEIGHTS_NAME} nor {WEIGHTS_INDEX_NAME} exists"
        + (f", only {', '.join(pickles)}, and reading a pickle runs the code in it" if pickles else ""),
        fix="save the weights as safetensors" if pickles else "pass a directory that contains saved weights",
    )


def _read_header(path: Path, promised: set[str] | None, found: _FoundWeights) -> None:
    if not path.exists():
        raise files.build_missing_error(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name in names:
                part = file.get_slice(name)
                found.shapes[name] = tuple(part.get_shape())
                found.dtypes[name] = _DTYPES.get(part.get_dtype())
                found.files[name] = path
            metadata = file.metadata() or {}
    except (OSError, SafetensorError, RuntimeError) as error:
        raise files.build_broken_error(path, f"{path.name} cannot be read: {error}") from error
    if promised is not None and promised != names:
        wrong = ", ".join(sorted(promised ^ names)[:_MAX_SHOWN])
        raise files.build_broken_error(path, f"{WEIGHTS_INDEX_NAME} and {path.name} disagree about {wrong}")
    found.aliases.update(_read_aliases(path, metadata.get(ALIASES), names))


def _read_aliases(path: Path, text: str | None, names: set[str]) -> dict[str, str]:
    try:
        aliases = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        aliases = None
    if not isinstance(aliases, dict) or not names.issuperset(map(str, aliases.values())):
        raise files.build_broken_error(path, f"the table of tied weights in {path.name} cannot be read")
    return aliases


@dataclass
class _Mismatch:
    """The differences between a model and a checkpoint; false if there are none."""

    missing: list[str]
    unexpected: list[str]
    shapes: list[str]
    kinds: list[str]
    untied: list[str]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.shapes or self.kinds or self.untied)

    def build_error(self, directory: Path) -> CheckpointError:
        reasons = (
            ("not in the checkpoint", self.missing),
            ("not in the model", self.unexpected),
            ("of another shape", self.shapes),
            ("of another kind of number", self.kinds),
            ("tied in the checkpoint but not in the model", self.untied),
        )
        return CheckpointError(
            what=f"the weights in {directory} do not fit the model",
            why="; ".join(f"{reason}: {_join_names(names)}" for reason, names in reasons if names),
            fix="build the model as in the run that saved it (same class, configuration and tied weights)",
        )


def _join_names(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN])
    return shown if len(names) <= _MAX_SHOWN else f"{shown} and {len(names) - _MAX_SHOWN} more"


def _compare(model: nn.Module, expected: Mapping[str, Any], found: _FoundWeights) -> _Mismatch:
    absent = [name for name in expected if name not in found.files]
    covered = _find_tied_names(expected, found)
    if any(name not in covered for name in absent):
        tie = _find_method(model, "tie_weights")
        if tie is not None:  # transformers leaves tied weights out of the file; here they are not tied yet
            with preserve_rng():
                tie()
            expected = model.state_dict()
            covered = _find_tied_names(expected, found)
    mismatch = _Mismatch([], [], [], [], [])
    for name in absent:
        if name in covered or name in (getattr(model, "_keys_to_ignore_on_save", None) or ()):
            continue
        (mismatch.untied if name in found.aliases else mismatch.missing).append(name)
    mismatch.unexpected = sorted(name for name in (*found.files, *found.aliases) if name not in expected)
    for name, value in expected.items():
        if name in found.files and isinstance(value, torch.Tensor):
            _compare_tensor(name, value, found, mismatch)
    return mismatch


def _find_tied_names(expected: Mapping[str, Any], found: _FoundWeights) -> set[str]:
    """Return the names that share their memory with a weight in the checkpoint."""
    tensors = {name: value for name, value in expected.items() if isinstance(value, torch.Tensor)}
    filled = {identify_memory(value) for name, value in tensors.items() if name in found.files}
    return {name for name, value in tensors.items() if identify_memory(value) in filled}


def _compare_tensor(name: str, value: torch.Tensor, found: _FoundWeights, mismatch: _Mismatch) -> None:
    if tuple(value.shape) != found.shapes[name]:
        mismatch.shapes.append(f"{name} (checkpoint {list(found.shapes[name])}, model {list(value.shape)})")
    saved = found.dtypes[name]
    if saved is None or saved == value.dtype:
        return
    if saved.is_floating_point and value.is_floating_point():
        dtypes = f"{_format_dtype(saved)} to {_format_dtype(value.dtype)}"
        note_once(
            f"the weights in {found.directory} are converted from {dtypes}, the type of the model",
            key=f"converted weights {found.directory}",
        )
    else:
        mismatch.kinds.append(f"{name} (checkpoint {_format_dtype(saved)}, model {_format_dtype(value.dtype)})")


def _format_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_ties(expected: Mapping[str, Any], found: _FoundWeights) -> None:
    """Raise unless weights that are tied in the model are equal in the file: otherwise one of them would be lost."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in expected.items():
        if name in found.files and isinstance(value, torch.Tensor):
            groups.setdefault(identify_memory(value), []).append(name)
    for names in groups.values():
        if len(names) > 1:
            first, *others = (_read_one(found, name) for name in names)
            if not all(_has_same_bits(first, other) for other in others):
                raise CheckpointError(
                    what=f"the weights in {found.directory} do not fit the model",
                    why=f"{', '.join(names)} are tied in the model and different in the checkpoint",
                    fix="build the model as in the run that saved it, without tying them",
                )


def _has_same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8))


def _read_one(found: _FoundWeights, name: str) -> torch.Tensor:
    path = found.files[name]
    try:
        with safe_open(path, framework="pt") as file:
            return file.get_tensor(name)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise files.build_broken_error(path, f"{path.name} cannot be read: {error}") from error


def _read_all(found: _FoundWeights, expected: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """Return all weights; of a model that is divided among processes, the parts of this process."""
    if any(map(is_distributed, (expected or {}).values())):
        stored = open_tensors(list(dict.fromkeys(found.files.values())))
        return {name: one.read_like((expected or {}).get(name)) for name, one in stored.items()}
    state: dict[str, torch.Tensor] = {}
    for path in dict.fromkeys(found.files.values()):
        try:
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                state.update({name: file.get_tensor(name) for name in names})
        except (OSError, SafetensorError, RuntimeError) as error:
            raise files.build_broken_error(path, f"{path.name} cannot be read: {error}") from error
    return state


def _fill(model: nn.Module, state: dict[str, torch.Tensor], found: _FoundWeights, load: LoadState) -> None:
    """Fill the model through `load_state_dict`, so that the hooks of modules run."""
    try:
        load(model, state)
    except RuntimeError as error:
        raise files.build_broken_error(found.directory / WEIGHTS_NAME, str(error)) from error


def _converts_weights(model: nn.Module) -> bool:
    """Return whether the model, or a part of it, may accept weights under other names or in other shapes."""
    return type(model).load_state_dict is not nn.Module.load_state_dict or any(
        module._load_state_dict_pre_hooks or type(module)._load_from_state_dict not in _WITHOUT_CONVERSION
        for module in model.modules()
    )


_WITHOUT_CONVERSION = (nn.Module._load_from_state_dict, nn.modules.batchnorm._NormBase._load_from_state_dict)


def _load_converting(model: nn.Module, expected: Mapping[str, Any], found: _FoundWeights, load: LoadState) -> bool:
    """Let the model load weights that are not as its own; return whether all of them found their place."""
    state = _read_all(found)
    try:
        result = load(model, {**state, **{name: state[owner] for name, owner in found.aliases.items()}})
    except RuntimeError:  # shapes that the model did not convert
        return False
    missing, unexpected = getattr(result, "missing_keys", ()), getattr(result, "unexpected_keys", ())
    filled = {
        identify_memory(value)
        for name, value in expected.items()
        if name not in missing and isinstance(value, torch.Tensor)
    }
    ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
    return not unexpected and all(
        name in ignored or (name in expected and identify_memory(expected[name]) in filled) for name in missing
    )


def _read_converted(
    model: nn.Module, directory: Path, dtypes: Collection[torch.dtype | None]
) -> dict[str, torch.Tensor] | None:
    """Return the weights as the model names them, where transformers stores them under other names (fused experts).

    None if this is no such model, or if the checkpoint does not fit it either way.
    """
    transformers = sys.modules.get("transformers")
    base = getattr(transformers, "PreTrainedModel", None)
    if base is None or not isinstance(model, base) or not (directory / CONFIG_NAME).is_file():
        return None
    load: Any = type(model)
    # Not in the model's own type, of which it may have several: widening is exact, and so is narrowing back.
    wide = torch.float64 if torch.float64 in dtypes else torch.float32
    with preserve_rng(), hide_progress_bars(), _quiet_logging():
        try:
            fresh, report = load.from_pretrained(
                directory, output_loading_info=True, use_safetensors=True, local_files_only=True, dtype=wide
            )
        except (RuntimeError, ValueError, OSError):
            return None
    if any(report.get(kind) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")):
        return None
    state, expected = fresh.state_dict(), model.state_dict()
    return state if _outline_state(state) == _outline_state(expected) else None


def _outline_state(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.Size, str]]:
    """Return the shape of every weight, and the first name of its memory, which shows the tied ones."""
    first: dict[tuple[Any, ...], str] = {}
    return {name: (value.shape, first.setdefault(identify_memory(value), name)) for name, value in state.items()}


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Suppress the report of transformers about weights that did not fit: we raise our own error."""
    log = sys.modules["transformers.utils.logging"]
    level = log.get_verbosity()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(level)


def _load_adapters(model: nn.Module, directory: Path) -> None:
    try:
        import peft  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupportedError(
            what="cannot load the adapters of this model",
            why="it has a peft_config, and peft is not installed",
            fix="pip install peft",
        ) from error
    adapters = list(model.peft_config)  # type: ignore[arg-type]
    states = {}
    for name in adapters:
        expected = peft.get_peft_model_state_dict(model, adapter_name=name)
        path = _find_adapter_file(directory, name, alone=len(adapters) == 1)
        states[name] = _read_adapter(path, expected)
    for name, state in states.items():  # all of them fit: only now is the model changed
        peft.set_peft_model_state_dict(model, state, adapter_name=name)


def _find_adapter_file(directory: Path, adapter: str, *, alone: bool) -> Path:
    """Return the file of an adapter.

    PEFT gives every adapter but `default` a directory; transformers, which saves one adapter, does not.
    """
    own = directory / adapter / ADAPTER_WEIGHTS_NAME
    if adapter == "default" or (alone and not own.exists()):
        return directory / ADAPTER_WEIGHTS_NAME
    return own


def _read_adapter(path: Path, expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    stored = any(map(is_distributed, expected.values()))
    state: dict[str, Any] = dict(open_tensors([path])) if stored else dict(read_tensors(path))
    prefix = "base_model.model."  # transformers adds it in the file, and its own models do not have it
    if not any(name.startswith(prefix) for name in expected):
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    mismatch = _Mismatch(
        missing=sorted(expected.keys() - state.keys()),
        unexpected=sorted(state.keys() - expected.keys()),
        shapes=[
            f"{name} (checkpoint {list(value.shape)}, model {list(expected[name].shape)})"
            for name, value in state.items()
            if name in expected and tuple(value.shape) != tuple(expected[name].shape)
        ],
        kinds=[],
        untied=[],
    )
    if mismatch:
        raise mismatch.build_error(path.parent)
    return {name: one.read_like(expected[name]) for name, one in state.items()} if stored else state
