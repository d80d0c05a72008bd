"""Every name, field, enum and method of transformers' trainer: offered, or listed as refused with its reason.

The names are collected from the installed package, so that a newer one fails here with what is new.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ostinato
from ostinato.compat import kept_names
from ostinato.compat.legacy_names import ATTRIBUTES, METHODS, REPLACEMENTS
from ostinato.compat.name_map import MODULES, VALUES, load_own
from tests.support.apis import load_library

pytest.importorskip("transformers")
PAGE = Path(__file__).parents[2] / "docs" / "drop-in.md"
STACK = tuple(
    """data.data_collator debug_utils hf_argparser hyperparameter_search integrations.integration_utils modelcard
    optimization trainer trainer_callback trainer_jit_checkpoint trainer_optimizer trainer_pt_utils trainer_seq2seq
    trainer_utils training_args training_args_seq2seq utils.hp_naming""".split()  # noqa: SIM905
)
BY_KEYWORD = ("self", "args", "state", "control")  # what follows in the event of a callback is given by keyword
IN_TRAINERS = {*ATTRIBUTES, *METHODS, *REPLACEMENTS}  # attributes of a trainer that are looked up, or answered


def find_module(path: str) -> Any:
    load_library("transformers")
    return import_module(f"transformers.{path}")


def list_defined(path: str) -> list[str]:
    """Return the public names that a module defines, as opposed to those that it imports."""
    module = find_module(path)
    found = dict.fromkeys(_list_bound(ast.parse(inspect.getsource(module)).body))
    return [name for name in found if not name.startswith("_") and name != "logger" and name in vars(module)]


def _list_bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _list_bound([*node.body, *node.orelse])


@pytest.mark.parametrize("path", STACK)
def test_every_name_of_a_module(path: str) -> None:
    module = f"transformers.{path}"
    ours = {*MODULES.get(module, ()), *VALUES.get(module, {})}
    listed = {**kept_names.list_kept(module), **kept_names.REFUSED.get(module, {})}
    defined = set(list_defined(path))
    assert not defined - ours - listed.keys(), "neither offered nor listed: name_map.py or kept_names.py"
    assert not listed.keys() - defined, "listed, and transformers does not define it"
    assert not listed.keys() & ours, "ours, and listed as transformers' own"
    assert all(listed.values())


def test_the_stack_has_all_modules_of_the_tables() -> None:
    named = {*MODULES, *VALUES, *kept_names.KEPT, *kept_names.REFUSED} - {"transformers"}
    assert {module.removeprefix("transformers.") for module in named} <= set(STACK)
    assert sum(len(list_defined(path)) for path in STACK) > 213


@cache
def list_pairs() -> dict[str, tuple[Any, Any]]:
    """Return transformers' object and ours of every name that is offered."""
    pairs = {}
    for module, names in MODULES.items():
        theirs = find_module(module.removeprefix("transformers.")) if module != "transformers" else None
        for name in names:
            if theirs is not None:
                pairs[name] = (getattr(theirs, name), load_own(name))
    return pairs


def test_every_name_that_is_replaced_is_at_the_top_level() -> None:
    assert not {name for names in MODULES.values() for name in names} - set(ostinato.__all__)


def test_enums_have_the_same_members_and_values() -> None:
    enums = {name: pair for name, pair in list_pairs().items() if isinstance(pair[0], type) and is_enum(pair[0])}
    assert len(enums) >= 9
    for name, pair in enums.items():
        theirs, ours = ({member: one.value for member, one in cls.__members__.items()} for cls in pair)
        assert ours == theirs, name


def is_enum(cls: type) -> bool:
    return issubclass(cls, Enum)


def test_fields_have_the_same_order_and_defaults() -> None:
    checked = 0
    for name, (theirs, ours) in list_pairs().items():
        if isinstance(theirs, type) and dataclasses.is_dataclass(theirs) and "Config" not in name:
            its, own = ([one for one in dataclasses.fields(cls) if one.init] for cls in (theirs, ours))
            assert [one.name for one in own] == [one.name for one in its], name
            defaults = [(plain(a), plain(b)) for a, b in zip(its, own, strict=True)]
            assert not [pair for pair in defaults if pair[0] != pair[1]], name
            checked += len(its)
    assert checked > 200


def plain(field: Any) -> Any:
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    value = default.value if isinstance(default, Enum) else default
    return field.name, "" if value is dataclasses.MISSING else value


def test_every_method_and_its_signature() -> None:
    missing = set(find_missing_members())
    assert missing == set(kept_names.REFUSED_MEMBERS)
    assert all(kept_names.REFUSED_MEMBERS.values())


def find_missing_members() -> Iterator[str]:
    for name, (theirs, ours) in list_pairs().items():
        if inspect.isfunction(theirs):
            if not accepts(ours, theirs):
                yield f"{name}()"
        elif isinstance(theirs, type) and not is_enum(theirs):
            yield from (f"{name}.{member}" for member in list_members(name, theirs) if not has(ours, theirs, member))
            yield from (
                f"{name}.{member}()"
                for member in list_members(name, theirs)
                if has(ours, theirs, member) and not accepts(getattr(ours, member, None), getattr(theirs, member))
            )


def list_members(name: str, cls: type) -> list[str]:
    """Return what a class of transformers adds to those of Python and torch; of a trainer, private members too."""
    found = dict.fromkeys(member for one in cls.__mro__ if "transformers" in one.__module__ for member in vars(one))
    wanted = ("__init__", "__call__", "__iter__", "__len__")
    is_trainer = name in ("Trainer", "Seq2SeqTrainer")
    return [one for one in found if one in wanted or not one.startswith("_" if not is_trainer else "__")]


def has(ours: Any, theirs: Any, member: str) -> bool:
    is_field = member in getattr(ours, "__dataclass_fields__", {})
    is_private_value = member.startswith("_") and not callable(getattr(theirs, member))
    is_answered = ours in (ostinato.Trainer, ostinato.Seq2SeqTrainer) and member in IN_TRAINERS
    return hasattr(ours, member) or is_field or is_answered or is_private_value


def accepts(ours: Any, theirs: Any) -> bool:
    """Return whether our function takes every call that transformers' takes, with the same defaults."""
    if not callable(theirs) or isinstance(theirs, type) or ours is None:
        return True
    its, own = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in own.values())
    named = [one for one in its.values() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    is_event = tuple(its)[:4] == BY_KEYWORD
    places = [one.name for one in named[:4] if is_event] or [
        one.name for one in named if one.kind is not one.KEYWORD_ONLY
    ]
    if list(own)[: len(places)] != places:
        return False
    return all(one.name in own or takes_any for one in named) and all(
        one.default is one.empty or show(one.default) == show(own[one.name].default)
        for one in named
        if one.name in own
    )


def show(default: Any) -> str:
    return repr(default.value if isinstance(default, Enum) else default)


def test_the_page_lists_what_is_refused() -> None:
    names = {f"`{module}.{name}`": why for module, rows in kept_names.REFUSED.items() for name, why in rows.items()}
    members = {f"`{member}`": why for member, why in kept_names.REFUSED_MEMBERS.items()}
    table = PAGE.read_text("utf-8").partition("## Names that are refused")[2].partition("\n## ")[0]
    rows = dict(line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `"))
    assert rows == {**names, **members}
