"""Print the argument classes of the client libraries that are installed, with the names of ours that each has too.

Classes that are derived from `TrainingArguments` are found by themselves; those that share a command line with it are
in the modules below as dataclasses.
"""

import importlib
import inspect
import json
import sys
import types
from dataclasses import fields, is_dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import ostinato.dropin  # noqa: F401
from ostinato import Extras, TrainingArguments

MODULES = (
    "FlagEmbedding.abc.finetune.embedder",
    "FlagEmbedding.abc.finetune.reranker",
    "axolotl.core.training_args",
    "chronos.chronos2.trainer",
    "gliner.training",
    "llamafactory.hparams",
    "peft",
    "sentence_transformers",
    "sentence_transformers.cross_encoder",
    "sentence_transformers.sparse_encoder",
    "setfit",
    "swift.arguments",
    "swift.trainers",
    "trl",
    "trl.experimental.cpo",
    "trl.experimental.orpo",
    "tsfm_public.toolkit",
)
if find_spec("torchaudio") is None:  # LLaMA-Factory imports it; text needs nothing of it
    sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
OURS = {field.name for field in fields(Extras)}


def derived(cls):
    """Yield every class below `cls`."""
    for child in type.__subclasses__(cls):
        yield child
        yield from derived(child)


def beside(module):
    """Yield the dataclasses of arguments that a module offers."""
    for name, value in inspect.getmembers(module, inspect.isclass):
        if is_dataclass(value) and name.endswith(("Arguments", "Config", "Args")):
            yield value


found = {}
for name in MODULES:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            continue  # the library is not in this environment, or not in a version that has the module
        raise
    for cls in beside(module):
        found[f"{cls.__module__}.{cls.__qualname__}"] = cls
for cls in derived(TrainingArguments):
    found[f"{cls.__module__}.{cls.__qualname__}"] = cls
told = {
    path: sorted(OURS & {field.name for field in fields(cls)})
    for path, cls in sorted(found.items())
    if is_dataclass(cls) and not path.startswith(("ostinato.", "transformers."))
}
Path(sys.argv[1]).write_text(json.dumps(told, indent=1), encoding="utf-8")
