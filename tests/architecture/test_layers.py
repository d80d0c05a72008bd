"""The direction of the doors: who may import whom, read from the source."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "ostinato"
LAYERS = [
    {"core"},
    {"arguments", "logging"},
    {"callbacks", "loss", "data", "metrics", "optim", "strategies"},
    {"checkpoint", "progress", "journal"},
    {"evaluation", "hub", "trackers", "compat", "report"},
    {"engine"},
    {"diagnostics"},
    {"search"},
    {"trainer", "dropin", "integrations"},
    {"seq2seq_trainer"},
    {"tasks"},
    {"cli"},
]
LAYER = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
MAY_IMPORT_DISTRIBUTED = {"strategies", "checkpoint"}
# Packages that get frozen settings, with the modules of callbacks, which get `args` by transformers' contract.
GETS_SETTINGS = {
    *("loss", "data", "metrics", "optim", "strategies", "checkpoint", "journal", "evaluation", "hub", "engine"),
    *("diagnostics", "search"),
}
IS_CALLBACK = {"journal.journal_callback"}
# Rooms whose third parties are optional and imported where they are used; rich is paid for by those who see a bar.
MAY_IMPORT_LATE = {"trackers", "hub", "search", "tasks", "cli"}
# Nouns of the field that end like a gerund or a participle.
FIELD_NOUNS = {
    *("answering", "averaging", "batching", "clipping", "counting", "embedding", "flattening", "freezing"),
    *("logging", "modeling", "packing", "pretraining", "padding", "pooling", "replicated", "reporting", "sharded"),
    *("smoothing", "speed", "staging", "stopping", "timing"),
}
MAY_OCCUR_TWICE = {"__init__", "__main__", "base", "registry"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def for_every_module(check: Callable[[Path], None]) -> Callable[[str], None]:
    """Check the modules of a package in one test: thousands of tests would spend their time on fixtures."""

    @pytest.mark.parametrize("room", sorted({room_of(path) for path in modules()}))
    def test(room: str) -> None:
        for path in modules():
            if room_of(path) == room:
                check(path)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def type_checking_only(tree: ast.AST) -> set[int]:
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    return {id(child) for block in blocks for child in ast.walk(block)}


def own_imports(path: Path, *, typing_too: bool = False) -> list[tuple[str, int]]:
    """(dotted module inside the package, line) of every relative import."""
    tree = parse(path)
    skipped = set() if typing_too else type_checking_only(tree)
    package = list(path.relative_to(ROOT).parts[:-1])
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in skipped:
            continue
        base = package[: len(package) - (node.level - 1)]
        for alias in node.names:
            whole = [*base, *(node.module.split(".") if node.module else []), alias.name]
            as_module = ROOT.joinpath(*whole)
            target = whole if as_module.with_suffix(".py").exists() or as_module.is_dir() else whole[:-1]
            found.append((".".join(target), node.lineno))
    return found


@for_every_module
def test_doors_only_lead_down(path: Path) -> None:
    here = room_of(path)
    if here in ("__init__", "__main__"):
        return
    assert here in LAYER, f"{here} has no place in the house"
    for target, line in own_imports(path, typing_too=True):
        there = target.split(".")[0]
        if there == here:
            continue
        assert LAYER[there] < LAYER[here], (
            f"{dotted(path)}:{line} imports {target}: {here} may not open a door to {there}"
        )


def test_no_module_imports_itself_in_a_circle() -> None:
    # A package that loads its modules on use imports them for type checkers alone.
    edges = {
        dotted(path): {target for target, _ in own_imports(path, typing_too=path.stem == "__init__")}
        for path in modules()
    }
    finished: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in finished:
            for target in edges.get(module, ()):
                walk(target, (*trail, module))
            finished.add(module)

    for module in edges:
        walk(module, ())


@for_every_module
def test_torch_distributed_stays_in_its_rooms(path: Path) -> None:
    text = path.read_text()
    if room_of(path) not in MAY_IMPORT_DISTRIBUTED:
        names = [
            name
            for node in ast.walk(parse(path))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        ]
        assert not any(name.startswith("torch.distributed") for name in names), dotted(path)
        assert "torch.distributed" not in text, dotted(path)


@for_every_module
def test_one_module_knows_the_kinds_of_devices(path: Path) -> None:
    """What works on one kind then works on all; the others ask `core.accelerator`."""
    if path.stem == "accelerator":
        return
    kinds = ("torch.cuda", "torch.mps", "torch.xpu", "torch.backends.cuda", "torch.backends.mps")
    named = {ast.unparse(node) for node in ast.walk(parse(path)) if isinstance(node, ast.Attribute)}
    assert not named.intersection(kinds), f"{dotted(path)}: ask core.accelerator"


def test_the_loop_only_hands_arguments_on() -> None:
    """It gives `args` to callbacks and looks nothing up in it; nor does it touch files."""
    for path in modules():
        if room_of(path) == "engine" and path.stem in ("loop", "run", "report", "finish"):
            text = path.read_text()
            assert "args." not in text.replace("*args.", ""), dotted(path)
            assert "open(" not in text, dotted(path)
            assert "pathlib" not in text, dotted(path)


def reads_of_arguments(tree: ast.AST) -> list[ast.Attribute]:
    """Return every `args.x` and `<anything>.args.x` of a module."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Name) and node.value.id == "args")
            or (isinstance(node.value, ast.Attribute) and node.value.attr == "args")
        )
    ]


@pytest.mark.parametrize("text", ["args.x", "trainer.args.x", "self.trainer.args.x", "f(host.args.x)"])
def test_a_read_of_arguments_is_found(text: str) -> None:
    assert reads_of_arguments(ast.parse(text))
    assert not reads_of_arguments(ast.parse(text.replace(".x", "")))


@for_every_module
def test_only_arguments_reads_arguments(path: Path) -> None:
    """Parts get frozen settings, or hand `args` on as a whole."""
    if room_of(path) in GETS_SETTINGS and dotted(path) not in IS_CALLBACK:
        reads = reads_of_arguments(parse(path))
        assert not reads, f"{dotted(path)}:{reads[0].lineno} reads an argument"


def test_a_basename_occurs_once() -> None:
    counted = Counter(path.stem for path in modules())
    twice = {name for name, count in counted.items() if count > 1} - MAY_OCCUR_TWICE
    assert not twice, f"modules with the same name: {[dotted(path) for path in modules() if path.stem in twice]}"


@for_every_module
def test_no_module_is_named_by_a_gerund_or_participle(path: Path) -> None:
    for part in path.relative_to(ROOT).with_suffix("").parts:
        last_word = part.split("_")[-1]
        assert not last_word.endswith(("ing", "ed")) or last_word in FIELD_NOUNS, f"{dotted(path)}: name it by a noun"


@for_every_module
def test_imports_are_at_the_top(path: Path) -> None:
    if room_of(path) in MAY_IMPORT_LATE:
        return
    tree = parse(path)
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    late = {
        (name, node.lineno)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."])
    }
    optional = ("rich", "IPython", "peft", "transformers", "datasets", "torchdata")
    ours = [(name, line) for name, line in late if name.split(".")[0] not in optional]
    assert not ours, f"{dotted(path)} imports inside a function: {ours}"
