"""Uploads to the hub: they happen beside training, and whatever the hub does, training is what it would have been."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import Trainer
from ostinato.core.errors import ConfigError
from ostinato.engine import save_writer
from ostinato.hub import publisher, staging, uploads
from tests.support import tiny
from tests.support.apis import Api
from tests.support.hub_fixtures import point_at
from tests.support.hub_server import OWNER, TOKEN, Hub
from tests.support.launcher import ROOT

ROWS = tiny.regression_rows()


def build(ours: Api, cls: Any = None, callbacks: Any = (), eval_dataset: Any = None, **arguments: Any) -> Any:
    given = {"push_to_hub": True, "hub_token": TOKEN, "hub_model_id": "it", "max_steps": 6, "save_strategy": "steps"}
    args = ours.args(**{**given, "save_steps": 2, **arguments})
    return ours.trainer(
        tiny.regression(), args, cls=cls, callbacks=callbacks, train_dataset=ROWS, eval_dataset=eval_dataset
    )


def weights(trainer: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def undisturbed_weights(tmp_path: Path) -> list[torch.Tensor]:
    trainer = build(Api("ostinato", tmp_path / "undisturbed"), push_to_hub=False)
    trainer.train()
    return weights(trainer)


def assert_unharmed(trainer: Any, tmp_path: Path) -> None:
    assert all(map(torch.equal, weights(trainer), undisturbed_weights(tmp_path)))
    checkpoints = sorted(path.name for path in Path(trainer.args.output_dir).glob("checkpoint-*"))
    assert checkpoints == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def nothing_aside(trainer: Any) -> bool:
    return not list(Path(trainer.args.output_dir).glob(f"{staging.PREFIX}*"))


def commands(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if line.strip().startswith("hf upload")]


class Held:
    """Holds the hub's answers back until it is let go."""

    def __init__(self, hub: Hub, wanted: Callable[[str], bool]) -> None:
        self.hub, self.wanted, self.free = hub, wanted, threading.Event()
        self.reached, self.was_forgotten = threading.Event(), False

    def __enter__(self) -> Held:
        def delay(request: str) -> None:
            if self.wanted(request):
                self.reached.set()
                self.was_forgotten |= not self.free.wait(20)

        self.hub.delay = delay
        return self

    def __exit__(self, *error: object) -> None:
        self.free.set()


# ---- a hub that works ----------------------------------------------------------------------------------------------


def test_names_are_completed_and_private_ones_are_private(ours: Api, hub: Hub) -> None:
    trainer = build(ours, hub_private_repo=True)
    assert trainer.hub_model_id == f"{OWNER}/it"
    assert trainer.push_in_progress is None
    assert hub.repos[f"{OWNER}/it"].private
    assert build(ours).hub_model_id == f"{OWNER}/it"  # which is there already
    assert build(ours, hub_model_id=None).hub_model_id == f"{OWNER}/{ours.output_dir.name}"


def test_the_last_state_arrives_even_if_the_hub_was_busy(ours: Api, hub: Hub, tmp_path: Path) -> None:
    with Held(hub, lambda request: "/preupload/" in request) as held:

        class Release(ours.TrainerCallback):
            def on_train_end(self, *args: Any, **kwargs: Any) -> None:
                held.free.set()

        trainer = build(ours, callbacks=[Release()])
        trainer.train()
    repo = hub.repos[f"{OWNER}/it"]
    assert repo.messages == ["Training in progress, step 2", "Training in progress, step 6"]
    on_disk = (Path(trainer.args.output_dir) / "checkpoint-6" / "model.safetensors").read_bytes()
    assert repo.files["model.safetensors"] == on_disk
    assert trainer.push_in_progress.is_done()
    assert nothing_aside(trainer)
    assert_unharmed(trainer, tmp_path)


def test_saves_stay_in_the_background(ours: Api, hub: Hub) -> None:
    plain = ours.Trainer(tiny.regression(), build(ours).args, train_dataset=ROWS)  # without the recorder
    assert not save_writer.is_read_immediately(plain)
    plain.train()
    assert hub.repos[f"{OWNER}/it"].messages[-1] == "Training in progress, step 6"

    class Own(Trainer):
        def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
            pushed.append((checkpoint_folder, self.state.global_step, Path(checkpoint_folder).is_dir()))

    pushed: list[Any] = []
    own = build(ours, cls=Own)
    assert save_writer.is_read_immediately(own)
    own.train()
    home = own.args.output_dir
    assert pushed == [(f"{home}/checkpoint-{step}", step, True) for step in (2, 4, 6)]


def test_checkpoints_that_are_rotated_away_arrive_whole(ours: Api, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_MIN_LINK_BYTES", 1)
    home = ours.output_dir

    def gone(request: str) -> None:
        """The first upload waits until its checkpoint is deleted."""
        for _ in range(2000):
            if (home / "checkpoint-6").exists() and not (home / "checkpoint-2").exists():
                return
            threading.Event().wait(0.005)

    hub.delay = lambda request: gone(request) if "/preupload/" in request else None
    trainer = build(ours, hub_strategy="all_checkpoints", hub_always_push=True, save_total_limit=1)
    trainer.train()
    files = hub.repos[f"{OWNER}/it"].files
    assert not (home / "checkpoint-2").exists()
    for step in (2, 4, 6):
        manifest = json.loads(files[f"checkpoint-{step}/MANIFEST.json"])
        for name, entry in manifest["files"].items():
            assert len(files[f"checkpoint-{step}/{name}"]) == entry["size"], name
    assert nothing_aside(trainer)


def test_a_model_that_is_saved_again_does_not_reach_an_upload(
    ours: Api, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_MIN_LINK_BYTES", 1)
    trainer = build(ours, push_to_hub=False)
    trainer.train()
    with Held(hub, lambda request: "/preupload/" in request) as held:
        future = trainer.push_to_hub(blocking=False)
        before = (ours.output_dir / "model.safetensors").read_bytes()
        assert held.reached.wait(20)
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.zero_()
        trainer.save_model()
    assert future.result(20).oid
    assert hub.repos[f"{OWNER}/it"].files["model.safetensors"] == before
    assert (ours.output_dir / "model.safetensors").read_bytes() != before


def test_a_run_goes_on_from_the_last_checkpoint_on_the_hub(ours: Api, hub: Hub, tmp_path: Path) -> None:
    build(ours, hub_strategy="checkpoint", max_steps=6, save_steps=4).train()
    stopped = {k: v for k, v in hub.repos[f"{OWNER}/it"].files.items() if k.startswith("last-checkpoint/")}
    for name, content in stopped.items():
        path = tmp_path / "download" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    elsewhere = build(Api("ostinato", tmp_path / "elsewhere"), hub_model_id="again", max_steps=8, save_steps=8)
    elsewhere.train(resume_from_checkpoint=str(tmp_path / "download" / "last-checkpoint"))
    assert elsewhere.state.global_step == 8
    assert hub.repos[f"{OWNER}/again"].messages == ["Training in progress, step 8"]


def test_a_branch_is_made_where_there_is_none(ours: Api, hub: Hub) -> None:
    trainer = build(ours, hub_revision="trial")
    trainer.train()
    trainer.push_to_hub("other", revision="v2")
    repo = hub.repos[f"{OWNER}/it"]
    assert not repo.files
    assert {"README.md", "model.safetensors"} <= set(repo.branches["v2"])
    assert "model.safetensors" in repo.branches["trial"]


def test_without_push_to_hub_it_can_still_be_asked_for(ours: Api, hub: Hub) -> None:
    trainer = build(ours, push_to_hub=False, hub_token=None, save_strategy="no")
    assert (trainer.hub_model_id, trainer.push_in_progress) == (None, None)
    trainer.train()
    assert not hub.repos
    assert trainer.push_to_hub(token=TOKEN, tags=["mine"]).commit_message == "End of training"
    assert trainer.hub_model_id == f"{OWNER}/it"
    assert b"- mine" in hub.repos[f"{OWNER}/it"].files["README.md"]


def test_saving_while_training_does_not_wait_for_the_hub(ours: Api, hub: Hub) -> None:
    with Held(hub, lambda request: "/preupload/" in request) as held:

        class Save(ours.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == 3:
                    trainer.save_model()

            def on_train_end(self, *args: Any, **kwargs: Any) -> None:
                held.free.set()

        trainer = build(ours, callbacks=[Save()], hub_strategy="end")
        trainer.train()
    assert hub.repos[f"{OWNER}/it"].messages == ["Model save"]


def test_other_processes_do_not_upload(ours: Api, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "is_world_process_zero", lambda self: False)
    trainer = build(ours)
    trainer._push_from_checkpoint(str(ours.output_dir))
    assert trainer.push_to_hub() is None
    trainer._finish_current_push()
    assert not hub.requests
    assert not (ours.output_dir / "README.md").exists()


def test_rehearse_and_verify_resume_upload_nothing(ours: Api, hub: Hub) -> None:
    trainer = build(ours)
    assert trainer.verify_resume(2).equal
    trainer.rehearse()
    assert not hub.repos[f"{OWNER}/it"].commits


def test_nothing_is_uploaded_that_is_not_the_models(ours: Api, hub: Hub) -> None:
    home = ours.output_dir
    for name in ("_private/a", ".hub-0123/left", "runs/log", "checkpoint-1/x", ".hidden"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    trainer = build(ours, eval_strategy="steps", eval_steps=3, load_best_model_at_end=True, eval_dataset=ROWS)
    trainer.train()
    trainer.push_to_hub()
    files = set(hub.repos[f"{OWNER}/it"].files)
    assert files == {".hidden", "README.md", "model.safetensors", "runs/log", "training_args.json"}
    assert nothing_aside(trainer)  # what a killed program left is swept


# ---- a hub that does not -------------------------------------------------------------------------------------------


def test_an_unreachable_hub(
    ours: Api, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        point_at(monkeypatch, f"http://127.0.0.1:{unused.getsockname()[1]}")
        trainer = build(ours)
        trainer.train()
        assert trainer.push_to_hub() is None
    said = capsys.readouterr().err
    assert said.count("could not upload") == 1
    assert "Connection refused" in said
    assert TOKEN not in said
    assert_unharmed(trainer, tmp_path)
    assert nothing_aside(trainer)
    assert len(commands(said)) == 2  # of the last checkpoint, and of the end


@pytest.mark.parametrize(("status", "reason"), [(500, "this hub is not well"), (503, "this hub is not well")])
def test_a_hub_that_answers_with_errors(
    ours: Api, hub: Hub, tmp_path: Path, status: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.refuse = lambda request: status if "/preupload/" in request else None
    trainer = build(ours, hub_strategy="checkpoint")
    trainer.train()
    said = capsys.readouterr().err
    assert f"the hub answered {status}: {reason}" in said
    assert said.count("could not upload") == 1
    assert [shlex.split(line)[2:5] for line in commands(said)] == [
        [f"{OWNER}/it", str(ours.output_dir / "checkpoint-6"), "."],
        [f"{OWNER}/it", str(ours.output_dir / "checkpoint-6"), "last-checkpoint"],
    ]
    assert_unharmed(trainer, tmp_path)


def test_a_token_that_is_wrong(ours: Api, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "hf_" + "w" * 34
    trainer = build(ours, hub_token=wrong)
    assert trainer.hub_model_id == "it"
    trainer.train()
    said = capsys.readouterr().err
    assert "the hub answered 401" in said
    assert "hf auth login" in said
    assert wrong not in said
    assert_unharmed(trainer, tmp_path)


def test_a_hub_that_never_answers(
    ours: Api, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(uploads, "MINIMUM_SECONDS", 0.3)
    monkeypatch.setattr(publisher, "CREATION_TIMEOUT", 0.2)
    with Held(hub, lambda request: "agent" not in request) as held:
        trainer = build(ours, hub_always_push=True)
        trainer.train()
        assert trainer.push_to_hub() is None
        assert nothing_aside(trainer)
        assert not held.was_forgotten, "it was waited for until the hub gave up"
    said = capsys.readouterr().err
    assert "did not answer within the time limit" in said
    assert len(commands(said)) == 2  # of the last checkpoint, and of the end
    assert "to upload after training: hf upload it" in said
    assert_unharmed(trainer, tmp_path)


def test_the_next_save_tries_again(ours: Api, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def refuse(request: str) -> int | None:
        if "/commit/" in request:
            seen.append(request)
            return 500 if len(seen) <= 2 else None  # the client does not try these again by itself
        return None

    class Wait(ours.TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            if trainer.push_in_progress is not None:
                trainer.push_in_progress.wait_until_done()

    hub.refuse = refuse
    trainer = build(ours, callbacks=[Wait()], hub_strategy="all_checkpoints")
    trainer.train()
    repo = hub.repos[f"{OWNER}/it"]
    assert {f"checkpoint-{step}/model.safetensors" for step in (2, 4, 6)} <= set(repo.files)
    said = capsys.readouterr().err
    assert said.count("could not upload") == 1
    assert not commands(said)


def test_the_printed_command_completes_the_upload(ours: Api, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    (ours.output_dir / "_private").mkdir(parents=True)
    (ours.output_dir / "_private" / "a").write_text("x")
    hub.refuse = lambda request: 500 if "/preupload/" in request else None
    trainer = build(ours)
    trainer.train()
    assert trainer.push_to_hub() is None
    hub.refuse = lambda request: None
    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "PATH": ""}
    for command in commands(capsys.readouterr().err):
        words = [sys.executable, "-m", "huggingface_hub.cli.hf", *shlex.split(command)[1:]]
        subprocess.run(words, env=environment, check=True, capture_output=True)
    repo = hub.repos[f"{OWNER}/it"]
    assert repo.messages == ["Training in progress, step 6", "End of training"]
    assert set(repo.files) == {"README.md", "model.safetensors", "training_args.json"}


def test_a_disk_without_room_for_an_upload(
    ours: Api, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging.shutil, "copyfile", full)
    trainer = build(ours)
    trainer.train()
    assert "nothing is uploaded" in capsys.readouterr().err
    assert_unharmed(trainer, tmp_path)
    assert nothing_aside(trainer)


# ---- mistakes, secrets, manners ------------------------------------------------------------------------------------


def test_names_the_hub_cannot_have_are_refused(ours: Api, hub: Hub) -> None:
    with pytest.raises(ConfigError, match=r"a/b/c.*\n.*why: .*\n.*hub_model_id"):
        build(ours, hub_model_id="a/b/c")


def test_without_the_library(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="push_to_hub needs huggingface_hub"):
        build(ours)
    trainer = build(ours, push_to_hub=False)
    with pytest.raises(ImportError, match="create_model_card needs huggingface_hub"):
        trainer.create_model_card()


def test_the_token_is_written_nowhere(ours: Api, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = build(ours, hub_strategy="checkpoint")
    trainer.train()
    trainer.push_to_hub()
    secret = TOKEN.encode()
    assert not [path for path, content in hub.repos[f"{OWNER}/it"].files.items() if secret in content]
    files = [path for path in ours.output_dir.rglob("*") if path.is_file()]
    assert not [path for path in files if secret in path.read_bytes()]
    assert TOKEN not in "".join(capsys.readouterr())
    assert TOKEN not in repr(trainer._publishing.repository)


def test_the_clients_bars_are_off_during_uploads_and_on_again(ours: Api, hub: Hub) -> None:
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars

    enable_progress_bars()
    shown = []
    hub.delay = lambda request: shown.append(not are_progress_bars_disabled()) if "/preupload/" in request else None
    build(ours).train()
    assert shown
    assert not any(shown)
    assert not are_progress_bars_disabled()


def test_a_program_that_ends_waits_for_what_was_asked_for(hub: Hub, tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support import tiny
from ostinato import Trainer, TrainingArguments
args = TrainingArguments("out", hub_token={TOKEN!r}, hub_model_id="it", use_cpu=True, report_to="none")
Trainer(tiny.regression(), args).push_to_hub(blocking=False)
"""
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    hub.delay = lambda request: threading.Event().wait(0.2) if "/preupload/" in request else None
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)
    assert set(hub.repos[f"{OWNER}/it"].files) == {"README.md", "model.safetensors", "training_args.json"}
    assert not list((tmp_path / "out").glob(f"{staging.PREFIX}*"))
