"""Names that client libraries use, collected from 46 public code bases: each works, or answers with a sentence.

`data/surface.json` holds the names alone.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ostinato
from ostinato.compat.legacy_names import ATTRIBUTES, METHODS, REPLACEMENTS
from ostinato.compat.name_map import MODULES, REMOVED, VALUES, load_own
from ostinato.core.errors import OstinatoError
from tests.support import tiny
from tests.support.apis import QUIET, Api, guest, load_library

SURFACE: dict[str, list[str]] = json.loads((Path(__file__).parent / "data" / "surface.json").read_text("utf-8"))

# Names that one library gives to its own subclasses, state or handler: they are there once it has put them there.
ITS_OWN = {
    "state": {"compute_steps", "init_training_references"},
    "callback_handler": {"setfit_args", "setfit_model"},
    "arguments": set(),
}
# Attributes of transformers' arguments that ours do not have, and why.
NOT_OFFERED = {"is_torch_greater_or_equal_than_2_8": "tells torch's version, not an argument"}
OF_ANOTHER_CLASS = {"accelerator_config", "distributed_state"}  # the same facts in an object of our own
OF_OTHER_PARTS = {"integrations.get_keys_to_not_convert"}  # quantization; transformers has dropped it itself
ON_A_TRAINER = sorted(
    {name for part in ("methods", "attributes", "legacy", "methods_of_5", "methods_of_4") for name in SURFACE[part]}
)


def answer(thing: Any, name: str) -> Any:
    """The attribute; or an error that says what to do."""
    try:
        for part in name.split("."):
            thing = getattr(thing, part)
    except OstinatoError as error:
        assert error.why
        assert error.fix
        return error
    return thing


def make_trainer(ours: Api) -> Any:
    args = ours.Seq2SeqTrainingArguments(str(ours.output_dir), use_cpu=True, report_to="none", disable_tqdm=True)
    return ours.Seq2SeqTrainer(tiny.regression(), args, train_dataset=tiny.regression_rows())


@pytest.fixture
def trainer(ours: Api) -> Any:
    return make_trainer(ours)


@pytest.fixture(scope="module")
def only_asked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer for all tests that do nothing but ask it for a name."""
    return make_trainer(Api("ostinato", tmp_path_factory.mktemp("asked")))


@pytest.mark.parametrize("name", ON_A_TRAINER)
def test_a_name_of_a_trainer(name: str, only_asked: Any) -> None:
    answer(only_asked, name)


@pytest.mark.parametrize("name", SURFACE["accelerator"])
def test_a_name_of_the_accelerator(name: str, only_asked: Any) -> None:
    if name.split(".")[0] == "parallelism_config" or name == "deepspeed_engine_wrapped.engine":
        assert answer(only_asked.accelerator, name.split(".")[0]) is None  # so that nobody asks further
    else:
        answer(only_asked.accelerator, name)


@pytest.mark.parametrize(
    ("part", "find"),
    [
        ("state", lambda trainer: trainer.state),
        ("control", lambda trainer: trainer.control),
        ("callback_handler", lambda trainer: trainer.callback_handler),
        ("events", lambda trainer: ostinato.TrainerCallback()),
        ("arguments", lambda trainer: trainer.args),
        ("fields", lambda trainer: trainer.args),
    ],
)
def test_names_of_its_parts(part: str, find: Any, trainer: Any) -> None:
    thing = find(trainer)
    for name in set(SURFACE[part]) - ITS_OWN.get(part, set()):
        answer(thing, name)


def test_constructor_arguments() -> None:
    parameters = inspect.signature(ostinato.Trainer.__init__).parameters
    assert set(SURFACE["constructor"]) <= set(parameters)


@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_every_public_attribute_of_their_arguments(name: str) -> None:
    """An instance offers what transformers' offers, with the same value; the exceptions are listed with a reason."""
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = getattr(load_library("transformers"), name)("out", **QUIET)
        values = {one: getattr(theirs, one) for one in dir(theirs) if not one.startswith("_")}
    ours = getattr(ostinato, name)("out", **QUIET)
    assert {one for one in values if not hasattr(ours, one)} == set(NOT_OFFERED)
    for one in values.keys() - NOT_OFFERED.keys() - OF_ANOTHER_CLASS:
        if not callable(values[one]):
            assert plain(getattr(ours, one)) == plain(values[one]), one


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def test_backends_that_arguments_are_asked_for_can_be_set(ours: Api) -> None:
    args = ours.args()
    args.deepspeed_plugin = "a plugin"
    assert (args.deepspeed_plugin, ours.args().deepspeed_plugin) == ("a plugin", None)


def test_arguments_of_seq2seq_are_its_own() -> None:
    plain = {one.name for one in fields(ostinato.TrainingArguments)}
    assert not plain & set(SURFACE["seq2seq_fields"])


def test_names_that_are_imported() -> None:
    """Every one of them is ours, or transformers' own, or answered."""
    pytest.importorskip("transformers")
    load_library("transformers")
    for dotted in SURFACE["imports"]:
        module, _, name = f"transformers.{dotted}".rpartition(".")
        is_ours = name in MODULES.get(module, ()) or name in VALUES.get(module, {})
        if is_ours:
            assert name in VALUES.get(module, {}) or load_own(name) is not None
        elif name not in REMOVED.get(module, {}) and name != "*" and dotted not in OF_OTHER_PARTS:
            assert hasattr(import_module(module), name), dotted


# ---- what the answers are ------------------------------------------------------------------------------------------


def test_a_trainers_own_names_are_not_shadowed() -> None:
    """The tables are asked only for what is not there: a row for something that is would never be read."""
    tables = {*ATTRIBUTES, *METHODS, *REPLACEMENTS}
    assert not [name for name in tables if hasattr(ostinato.Trainer, name)]


def test_an_answer_names_the_subclass_and_a_plain_miss_stays_plain(ours: Api) -> None:
    class Mine(ours.Trainer):
        pass

    trainer = ours.trainer(tiny.regression(), cls=Mine, train_dataset=tiny.regression_rows())
    with pytest.raises(AttributeError, match=r"Mine has no 'init_git_repo'\n.*git.*\n.*push_to_hub"):
        trainer.init_git_repo()
    with pytest.raises(AttributeError, match=r"^'Mine' object has no attribute 'learning_rate'$"):
        _ = trainer.learning_rate
    assert getattr(trainer, "init_git_repo", "none") == "none"


def test_backends_that_are_not_in_use(trainer: Any) -> None:
    assert (trainer.is_deepspeed_enabled, trainer.is_fsdp_enabled, trainer.deepspeed) == (False, False, None)
    trainer.is_fsdp_enabled = True  # some clients say so themselves
    assert trainer.is_fsdp_enabled
    trainer._memory_tracker.start()
    trainer._memory_tracker.stop_and_update_metrics({})


def test_older_methods_still_do_their_work(ours: Api) -> None:
    rows = tiny.regression_rows()
    args = ours.args(max_steps=3, save_strategy="steps", save_steps=1, save_total_limit=None)
    trainer = ours.trainer(tiny.regression(), args, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    names = [Path(path).name for path in trainer._sorted_checkpoints(use_mtime=True)]
    assert names == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    trainer.args.save_total_limit = 2
    trainer._rotate_checkpoints()
    assert [Path(path).name for path in trainer._sorted_checkpoints()] == ["checkpoint-2", "checkpoint-3"]
    weights = trainer.model.state_dict()
    name, tensor = next(iter(weights.items()))
    assert trainer._nested_gather((tensor, None)[:1])[0] is tensor
    assert (trainer._gather_and_numpify(tensor, "x") == tensor.cpu().numpy()).all()
    assert trainer._pad_across_processes(tensor) is tensor
    output = trainer.prediction_loop(trainer.get_eval_dataloader(), description="Evaluation")
    assert output.num_samples == len(rows)
    trainer._load_state_dict_in_model({name: tensor * 0})
    assert not trainer.model.state_dict()[name].any()


def test_missing_weights_are_named(ours: Api, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = ours.trainer(tiny.regression(), train_dataset=tiny.regression_rows())
    trainer._load_state_dict_in_model({"other": next(trainer.model.parameters())})
    said = capsys.readouterr().err
    assert "the checkpoint has unexpected keys: other" in said
    assert "the checkpoint has missing keys: " in said


def test_an_override_of_a_step_of_their_loop_is_told_to_have_no_effect(
    ours: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mine(ours.Trainer):
        def _run_epoch(self, *args, **kwargs): ...

        def _nested_gather(self, tensors): ...

    ours.trainer(tiny.regression(), cls=Mine, train_dataset=tiny.regression_rows())
    said = capsys.readouterr().err
    assert "Mine._run_epoch has no effect" in said
    assert "_nested_gather" not in said
