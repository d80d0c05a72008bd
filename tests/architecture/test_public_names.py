"""`__all__` equals reality, and importing costs nothing that was not asked for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_type_hints

import ostinato


def test_all_names_load_and_nothing_else_is_promised() -> None:
    assert sorted(ostinato.__all__) == sorted(ostinato._MODULE_OF), "__all__ and the table of names differ"
    for name in ostinato.__all__:
        assert getattr(ostinato, name) is not None
    assert len(set(ostinato.__all__)) == len(ostinato.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(ostinato, "Trainerr")


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_neither_transformers_nor_anything_optional() -> None:
    modules = loaded_by("from ostinato import Trainer, TrainingArguments")
    roots = {name.split(".")[0] for name in modules}
    assert not roots & {"transformers", "datasets", "accelerate", "peft", "rich", "pandas", "sklearn", "pytest"}


def test_importing_the_package_alone_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import ostinato")


def test_the_type_hints_of_the_trainer_resolve() -> None:
    """Those that name modules load them."""
    methods = [value for value in vars(ostinato.Trainer).values() if inspect.isfunction(value)]
    assert len(methods) > 50
    for annotated in (ostinato.Trainer, *methods):
        get_type_hints(annotated)
