"""Which parts of a model are gathered and freed together when its weights are divided among processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from ..arguments.shard_settings import ShardSettings
from ..core.errors import ConfigError
from ..core.notices import note_once


def find_blocks(model: nn.Module, settings: ShardSettings) -> list[nn.Module]:
    """Return the modules whose weights are gathered one after the other, inner ones first. The rest is one group.

    A module that shares a parameter with one outside of it (tied embeddings) is left to the rest.

    Raises:
        ConfigError: The model has no module of a class that `transformer_layer_cls_to_wrap` names.
    """
    if settings.min_parameters:
        chosen = _choose_by_size(model, settings.min_parameters)
    else:
        chosen = _choose_by_class(model, settings.classes)
    uses = _count_uses(model)
    return [block for block in chosen if not _shares_parameters(block, uses)]


def _choose_by_class(model: nn.Module, names: tuple[str, ...] | None) -> list[nn.Module]:
    wanted = set(_list_own_classes(model) if names is None else names)
    if not wanted:
        note_once(
            f"{type(model).__name__} does not name its layers (_no_split_modules), so all its weights are gathered at "
            "once; fsdp_config={'transformer_layer_cls_to_wrap': [...]} or {'min_num_params': N} needs less memory"
        )
    present = [module for module in _walk_up(model) if module is not model]
    missing = wanted - {type(module).__name__ for module in present}
    if names is not None and missing:
        kinds = sorted({type(module).__name__ for module in present if any(True for _ in module.children())})
        raise ConfigError(
            what=f"transformer_layer_cls_to_wrap names {', '.join(sorted(missing))}, which the model does not have",
            why=f"its modules with parts are of these classes: {', '.join(kinds) or 'none'}",
            fix="name one of them, or leave it out to use the layers that the model names itself",
        )
    return [module for module in present if type(module).__name__ in wanted]


def _list_own_classes(model: nn.Module) -> set[str]:
    """Return the classes that a model, or a model inside it (an adapter's base), asks not to split."""
    return {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}


def _choose_by_size(model: nn.Module, least: int) -> list[nn.Module]:
    """Return modules of at least `least` parameters that are in no smaller one that was chosen."""
    chosen: list[nn.Module] = []
    covered: set[int] = set()
    for module in _walk_up(model):
        if module is model or isinstance(module, (nn.ModuleList, nn.ModuleDict)):  # these are not called
            continue
        own = {id(one): one.numel() for one in module.parameters()}
        if sum(size for key, size in own.items() if key not in covered) >= least:
            chosen.append(module)
            covered.update(own)
    return chosen


def _walk_up(model: nn.Module) -> Iterator[nn.Module]:
    """Yield every module once, inner ones before those that hold them."""
    seen: set[nn.Module] = set()

    def walk(module: nn.Module) -> Iterator[nn.Module]:
        seen.add(module)
        for child in module.children():
            if child not in seen:
                yield from walk(child)
        yield module

    yield from walk(model)


def _count_uses(module: nn.Module) -> Counter[int]:
    """Return how many slots of the modules inside hold each parameter."""
    return Counter(
        id(parameter) for part in module.modules() for parameter in part._parameters.values() if parameter is not None
    )


def _shares_parameters(block: nn.Module, uses: Counter[int]) -> bool:
    return any(uses[parameter] > count for parameter, count in _count_uses(block).items())
