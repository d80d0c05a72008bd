"""What is on the hub after a run: the same commits and files as with transformers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.apis import Api, guest
from tests.support.hub_fixtures import local_hub
from tests.support.hub_server import TOKEN, Hub, Repo

pytest.importorskip("transformers")

# A checkpoint of ours has these; what transformers has, ours has too under checkpoint_layout="transformers".
OURS_ALONE = {
    "MANIFEST.json", "loop.json", "loop.safetensors", "optimizer.json", "optimizer.safetensors", "rng-0.json",
    "rng-0.safetensors", "run.json", "scheduler.json", "training_args.json",
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as hub:
        yield hub


def run(
    name: str,
    directory: Path,
    hub: Hub,
    then: Any = lambda trainer: None,
    cls: Any = lambda api: api.Trainer,
    **arguments: Any,
) -> tuple[Any, Repo]:
    with guest(name):
        api = Api(name, directory / name)
        api.set_seed(42)
        given = {
            "push_to_hub": True,
            "hub_model_id": f"guild/{name}",
            "hub_token": TOKEN,
            "hub_always_push": True,
            "max_steps": 4,
            "save_strategy": "steps",
            "save_steps": 2,
            **api.ours(checkpoint_layout="transformers"),
        }
        trainer = api.trainer(
            tiny.bert(), api.args(**{**given, **arguments}), train_dataset=tiny.classification_rows(),
            eval_dataset=tiny.classification_rows(8), processing_class=tiny.tokenizer(), cls=cls(api),
        )  # fmt: skip
        trainer.train()
        then(trainer)
        return trainer, hub.repos[f"guild/{name}"]


def assert_alike(theirs: Repo, ours: Repo) -> None:
    assert ours.messages == theirs.messages
    as_ours = {path.replace("training_args.bin", "training_args.json") for path in theirs.files}
    assert as_ours <= set(ours.files)
    extra = {path.rpartition("/")[2] for path in set(ours.files) - set(theirs.files)}
    assert extra <= OURS_ALONE
    top_level = {path for path in set(ours.files) - as_ours if "/" not in path}
    assert top_level <= {"training_args.bin"}


@pytest.mark.parametrize("strategy", ["end", "every_save", "checkpoint", "all_checkpoints"])
def test_what_a_strategy_uploads(strategy: str, tmp_path: Path, hub: Hub) -> None:
    (_, theirs), (_, ours) = (run(name, tmp_path, hub, hub_strategy=strategy) for name in ("transformers", "ostinato"))
    assert_alike(theirs, ours)
    assert bool(ours.files) == (strategy != "end")


@pytest.mark.parametrize(
    "arguments", [{"save_strategy": "no"}, {"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 2}], ids=str
)
def test_when_there_are_other_saves(arguments: dict[str, Any], tmp_path: Path, hub: Hub) -> None:
    (_, theirs), (_, ours) = (run(name, tmp_path, hub, **arguments) for name in ("transformers", "ostinato"))
    assert_alike(theirs, ours)


def test_what_methods_upload(tmp_path: Path, hub: Hub) -> None:
    def then(trainer: Any) -> None:
        trainer.save_model()
        trainer.save_model(str(Path(trainer.args.output_dir) / "other"))
        trainer.save_state()
        assert trainer.push_to_hub().oid
        assert trainer.push_to_hub("once more", blocking=False, language="en").result().oid

    (theirs_trainer, theirs), (trainer, ours) = (
        run(name, tmp_path, hub, then, hub_strategy="end") for name in ("transformers", "ostinato")
    )
    assert_alike(theirs, ours)
    assert ours.messages == ["Model save", "Model save", "End of training", "once more"]
    assert (theirs_trainer.hub_model_id, trainer.hub_model_id) == ("guild/transformers", "guild/ostinato")


def test_the_card_has_the_metadata_that_transformers_writes(tmp_path: Path, hub: Hub) -> None:
    from huggingface_hub import ModelCard

    def then(trainer: Any) -> None:
        trainer.compute_metrics = lambda prediction: {"accuracy": 0.5, "f1": 0.25}
        trainer.evaluate()
        trainer.create_model_card(
            language="en", license="mit", tags="mine", model_name="A name", finetuned_from="bert-base-uncased",
            tasks="text-classification", dataset_tags="glue", dataset="GLUE MRPC", dataset_args="mrpc",
        )  # fmt: skip

    cards = []
    for name in ("transformers", "ostinato"):
        run(name, tmp_path, hub, then, hub_strategy="end")
        cards.append(ModelCard.load(tmp_path / name / "README.md").data.to_dict())
    for card in cards:
        for result in card["model-index"][0]["results"]:
            result["dataset"] = {key: result["dataset"][key] for key in ("name", "type", "args")}
    assert cards[0] == cards[1]
    assert cards[1]["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.5


def test_a_checkpoint_that_is_rotated_away_before_it_is_sent(tmp_path: Path, hub: Hub) -> None:
    arrived = {}
    for name in ("transformers", "ostinato"):

        def rotated(request: str, home: Path = tmp_path / name) -> None:
            """The hub answers once training has gone on and the first checkpoint is deleted."""
            for _ in range(2000):
                if (home / "checkpoint-4").exists() and not (home / "checkpoint-2").exists():
                    return
                time.sleep(0.005)

        hub.delay = lambda request, rotated=rotated: rotated(request) if "/preupload/" in request else None
        _, repo = run(name, tmp_path, hub, hub_strategy="all_checkpoints", save_total_limit=1)
        arrived[name] = {path.partition("/")[0] for path in repo.files if "/" in path}
    assert arrived == {"transformers": {"checkpoint-4"}, "ostinato": {"checkpoint-2", "checkpoint-4"}}


# ---- overrides ------------------------------------------------------------------------------------------------------


def test_overrides_of_pushing_and_describing_take_effect(tmp_path: Path, hub: Hub) -> None:
    """Each is called with transformers' arguments, may call `super()`, and changes what arrives."""
    seen: dict[str, list[Any]] = {}
    for name in ("transformers", "ostinato"):
        calls: list[Any] = []

        def mine(api: Any, calls: list[Any] = calls) -> type:
            class Mine(api.Trainer):
                def push_to_hub(
                    self, commit_message: Any = "End of training", blocking: bool = True, **rest: Any
                ) -> Any:
                    calls.append(("push_to_hub", commit_message, blocking))
                    return super().push_to_hub(f"{commit_message}, at last", blocking, **rest)

                def create_model_card(self, *args: Any, **rest: Any) -> None:
                    calls.append(("create_model_card", len(args), "model_name" in rest))
                    super().create_model_card(*args, **{**rest, "license": "mit"})

                def _push_from_checkpoint(self, checkpoint_folder: Any) -> None:
                    calls.append(("_push_from_checkpoint", Path(checkpoint_folder).name))
                    if not str(checkpoint_folder).endswith("-2"):
                        super()._push_from_checkpoint(checkpoint_folder)

            return Mine

        _, repo = run(name, tmp_path / name, hub, lambda trainer: trainer.push_to_hub(), cls=mine)
        messages = repo.messages
        assert "End of training, at last" in messages
        assert not [message for message in messages if message.endswith("step 2")]
        assert b"license: mit" in repo.files["README.md"]
        seen[name] = calls
    assert seen["ostinato"] == seen["transformers"]


class TestFilesBesideTheModel:
    """The top of the repository has the model, and what else lies in the output directory."""

    def test_files_of_a_subclass_in_its_checkpoints(self, tmp_path: Path, hub: Hub) -> None:
        def writes(api: Any) -> type:
            class Writes(api.Trainer):
                def _save(self, output_dir: Any = None, state_dict: Any = None) -> None:
                    super()._save(output_dir, state_dict)
                    (Path(output_dir) / "samples").mkdir()
                    (Path(output_dir) / "samples" / "0.txt").write_text("private")
                    (Path(output_dir) / "notes[1].json").write_text("{}")

            return Writes

        (_, theirs), (_, ours) = (run(name, tmp_path, hub, cls=writes) for name in ("transformers", "ostinato"))
        assert_alike(theirs, ours)
        assert not [path for path in ours.files if path.startswith(("samples", "notes"))]

    def test_a_checkpoint_that_is_copied_into_the_output_directory(self, tmp_path: Path, hub: Hub) -> None:
        """sentence-transformers does this, without the files of transformers by which a run goes on."""
        state = shutil.ignore_patterns("optimizer.pt", "scheduler.pt", "rng_state*.pth", "trainer_state.json")

        def copies(api: Any) -> type:
            class Copies(api.Trainer):
                def _push_from_checkpoint(self, checkpoint_folder: Any) -> None:
                    shutil.copytree(checkpoint_folder, self.args.output_dir, dirs_exist_ok=True, ignore=state)
                    super()._push_from_checkpoint(checkpoint_folder)

            return Copies

        (_, theirs), (_, ours) = (run(name, tmp_path, hub, cls=copies) for name in ("transformers", "ostinato"))
        assert_alike(theirs, ours)
        assert not OURS_ALONE - {"training_args.json"} & set(ours.files)

    def test_files_of_these_names_that_are_the_users(self, tmp_path: Path, hub: Hub) -> None:
        for name in ("transformers", "ostinato"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.json").write_text("{}")
        (_, theirs), (_, ours) = (run(name, tmp_path, hub) for name in ("transformers", "ostinato"))
        assert "run.json" in theirs.files
        assert "run.json" in ours.files

    def test_tensors_of_callbacks(self, tmp_path: Path, hub: Hub) -> None:
        with guest("ostinato"):
            api = Api("ostinato", tmp_path / "averaged")
            args = api.args(
                push_to_hub=True, hub_model_id="guild/averaged", hub_token=TOKEN, max_steps=2, save_strategy="epoch"
            )
            rows = tiny.classification_rows()
            api.trainer(tiny.bert(), args, train_dataset=rows, callbacks=[api.EMACallback(decay=0.9)]).train()
        assert (tmp_path / "averaged" / "checkpoint-2" / "callbacks.safetensors").exists()
        assert "callbacks.safetensors" not in hub.repos["guild/averaged"].files
