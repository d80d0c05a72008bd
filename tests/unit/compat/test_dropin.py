"""Our names in a package called transformers: a small one, so that its modules tell when their code runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"

PACKAGE = {
    # Like the real one it looks its names up when they are asked for.
    "__init__.py": """
        import importlib, sys, types

        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                homes = {"IntervalStrategy": "trainer_utils", "SaveStrategy": "trainer_utils", "model": "models"}
                if name not in homes:
                    raise AttributeError(f"module transformers has no attribute {name}")
                value = getattr(importlib.import_module("." + homes[name], "transformers"), name)
                setattr(self, name, value)
                return value

        lazy = Lazy(__name__)
        lazy.__dict__.update({k: v for k, v in globals().items() if k.startswith("__")})
        sys.modules[__name__] = lazy
        """,
    "trainer_utils.py": """
        print("trainer_utils runs")

        class IntervalStrategy: ...
        class SaveStrategy: ...
        class EvalPrediction: ...

        def interval():
            return IntervalStrategy

        other = 1
        """,
    "trainer_callback.py": """
        from .trainer_utils import IntervalStrategy, other
        """,
    "models.py": """
        from .trainer_utils import SaveStrategy

        def model():
            return SaveStrategy
        """,
    "training_args.py": """
        raise RuntimeError("cannot be loaded")
        """,
    "optimization.py": "",
}


@pytest.fixture
def script(tmp_path: Path):
    """Runs a script in a process of its own; returns what it printed, line by line, and what it said."""
    package = tmp_path / "transformers"
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def run(text: str) -> tuple[list[str], str]:
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, str(file)],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": f"{tmp_path}:{SOURCE}", "PATH": ""},
            cwd=tmp_path,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.split("\n")[:-1], ended.stderr

    return run


def test_names_are_ours_wherever_they_come_from_and_their_code_does_not_run(script) -> None:
    out, said = script("""
        import ostinato.dropin
        import transformers
        from transformers import IntervalStrategy
        from transformers.trainer_utils import IntervalStrategy as again, SaveStrategy
        import transformers.trainer_utils as utils
        print(IntervalStrategy.__module__, IntervalStrategy is again is transformers.IntervalStrategy)
        print(SaveStrategy is utils.SaveStrategy is transformers.SaveStrategy)
        """)
    assert out == ["ostinato.core.choices True", "True"]
    assert said.count("\n") == 1
    assert said.startswith("ostinato: transformers' Trainer, TrainingArguments and ")


def test_other_names_run_their_code_once_and_what_it_defines_sees_ours(script) -> None:
    out, _ = script("""
        import ostinato.dropin
        from transformers.trainer_utils import interval, other
        import transformers.trainer_utils as utils
        print(other, interval().__module__, utils.IntervalStrategy.__module__)
        from transformers.models import model
        print(model().__module__)
        utils.IntervalStrategy = "patched"
        print(interval())
        """)
    assert out == [
        "trainer_utils runs",
        "1 ostinato.core.choices ostinato.core.choices",
        "ostinato.core.choices",
        "patched",
    ]


def test_all_names_at_once(script) -> None:
    out, _ = script("""
        import ostinato.dropin
        from transformers.trainer_utils import *
        print(IntervalStrategy.__module__, other)
        print("EvalPrediction" in dir(__import__("transformers.trainer_utils").trainer_utils))
        """)
    assert out == ["trainer_utils runs", "ostinato.core.choices 1", "True"]


def test_a_removed_name_is_noted(script) -> None:
    out, said = script("""
        import ostinato.dropin
        for line in ("from transformers import AdamW", "from transformers.optimization import AdamW"):
            try:
                exec(line)
            except ImportError as error:
                print("cannot import name 'AdamW'" in str(error))
        import transformers.optimization as optimization
        print(hasattr(optimization, "AdamW"), hasattr(optimization, "nothing"))
        """)
    assert out == ["True", "True", "False False"]
    assert "transformers.AdamW no longer exists: use torch.optim.AdamW" in said
    assert "transformers.optimization.AdamW no longer exists" in said


def test_a_module_that_cannot_be_loaded_says_so_every_time_but_has_our_names(script) -> None:
    out, _ = script("""
        import ostinato.dropin
        from transformers.training_args import OptimizerNames
        print(OptimizerNames.__module__)
        for _ in range(2):
            try:
                from transformers.training_args import something
            except RuntimeError as error:
                print(error)
        """)
    assert out == ["ostinato.core.choices", "cannot be loaded", "cannot be loaded"]


def test_install_after_transformers_was_imported(script) -> None:
    out, said = script("""
        import transformers
        from transformers import IntervalStrategy, SaveStrategy as Saves
        from transformers.models import model

        class Mine(IntervalStrategy): ...

        theirs = IntervalStrategy
        import ostinato.dropin
        print(IntervalStrategy.__module__, Saves.__module__, transformers.IntervalStrategy is IntervalStrategy)
        print(model().__module__, Mine.__mro__[1] is not IntervalStrategy)
        import transformers.trainer_callback as callback
        print(callback.IntervalStrategy is IntervalStrategy)
        """)
    assert out == [
        "trainer_utils runs",
        "ostinato.core.choices ostinato.core.choices True",
        "ostinato.core.choices True",
        "True",
    ]
    assert "__main__.Mine: defined before ostinato.dropin was imported" in said


def test_remove_and_install_again(script) -> None:
    out, said = script("""
        import ostinato.dropin as dropin
        import transformers
        from transformers.models import model
        print(transformers.IntervalStrategy.__module__, model().__module__)
        dropin.install()
        dropin.remove()
        dropin.remove()
        print(dropin.is_installed(), transformers.IntervalStrategy.__module__, model().__module__)
        from transformers.trainer_utils import IntervalStrategy
        print(IntervalStrategy is transformers.IntervalStrategy)
        dropin.install()
        print(transformers.IntervalStrategy.__module__, IntervalStrategy.__module__, model().__module__)
        dropin.remove()
        print(transformers.IntervalStrategy.__module__, IntervalStrategy.__module__, model().__module__)
        """)
    theirs, ours = "transformers.trainer_utils", "ostinato.core.choices"
    assert [line for line in out if "runs" not in line] == [
        f"{ours} {ours}",
        f"False {theirs} {theirs}",
        "True",
        f"{ours} {ours} {ours}",
        f"{theirs} {theirs} {theirs}",
    ]
    assert said.count("names are Ostinato's") == 2
