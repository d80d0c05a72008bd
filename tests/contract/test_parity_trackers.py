"""What TensorBoard shows of a run: the same tags, steps and values from transformers and from us."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("tensorboard")

from tests.support.apis import LIBRARIES, QUIET, Api, guest
from tests.support.tiny import regression, regression_rows

CLOCKED = ("runtime", "per_second")


def scalars(directory: Path) -> dict[str, list[tuple[int, float | None]]]:
    """Every tag of the only run in a directory, as TensorBoard's own reader has it; without what a clock decides."""
    (run,) = {path.parent for path in directory.rglob("events.out.tfevents.*")}
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run)).Reload()
    found = {
        tag: [(one.step, None if tag.endswith(CLOCKED) else one.value) for one in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    texts = {tag: [(one.step, None) for one in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
    return {**found, **texts}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_the_same(tmp_path) -> None:
    shown = {}
    for name in LIBRARIES:
        with guest(name):
            api = Api(name, tmp_path / name)
            args = api.args(
                **{**QUIET, "report_to": ["tensorboard"]}, max_steps=5, logging_steps=2, eval_strategy="steps",
                eval_steps=2, **api.ours(isolate_rng=False),
            )  # fmt: skip
            trainer = api.trainer(regression(), args, train_dataset=regression_rows(), eval_dataset=regression_rows())
            trainer.train()
            trainer.log({"test_f1": 0.25, "testing": 1.0, "eval_": 2.0, "kl": 0.5})
            (writer,) = [
                one for one in trainer.callback_handler.callbacks if type(one).__name__ == "TensorBoardCallback"
            ]
            writer.tb_writer.flush()
            shown[name] = scalars(tmp_path / name)
            writer.tb_writer.close()
    assert shown["ostinato"] == shown["transformers"]
    assert shown["ostinato"]["train/loss"][0][0] == 2
    assert np.isfinite(shown["ostinato"]["eval/loss"][0][1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("set_by", ["TENSORBOARD_LOGGING_DIR", "logging_dir"])
def test_where_the_files_go(tmp_path, monkeypatch, set_by) -> None:
    chosen = tmp_path / "chosen"
    given = {}
    if set_by == "logging_dir":
        given["logging_dir"] = str(chosen)
    else:
        monkeypatch.setenv(set_by, str(chosen))
    api = Api("ostinato", tmp_path / "run")
    args = api.args(**{**QUIET, "report_to": "tensorboard"}, max_steps=1, **given)
    api.trainer(regression(), args, train_dataset=regression_rows()).train()
    assert "train/loss" in scalars(chosen)
    assert not (tmp_path / "run" / "runs").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_writer_of_the_users_is_used_and_stays_open(tmp_path) -> None:
    writer = import_module("torch.utils.tensorboard").SummaryWriter(str(tmp_path / "mine"))
    api = Api("ostinato", tmp_path / "run")
    callback = api.TensorBoardCallback(writer)
    args = api.args(**{**QUIET, "report_to": "tensorboard"}, max_steps=1)
    api.trainer(regression(), args, train_dataset=regression_rows(), callbacks=[callback]).train()
    writer.add_scalar("after", 1.0, 9)
    writer.close()
    found = scalars(tmp_path)
    assert found["after"] == [(9, 1.0)] and "train/loss" in found


@pytest.mark.filterwarnings("ignore")
def test_a_subclass_in_the_manner_of_transformers(tmp_path) -> None:
    """Scripts derive from these callbacks, hook into `setup` and use the writer."""
    api = Api("ostinato", tmp_path)

    class Mine(api.TensorBoardCallback):
        def setup(self, args, state, model, **kwargs):
            super().setup(args, state, model, **kwargs)
            assert self._initialized
            self.tb_writer.add_scalar("begun", 1.0, state.global_step)

        def on_log(self, args, state, control, logs=None, **kwargs):
            super().on_log(args, state, control, {**logs, "loss": 0.5} if "loss" in logs else logs, **kwargs)

    args = api.args(max_steps=2)
    api.trainer(regression(), args, train_dataset=regression_rows(), callbacks=[Mine]).train()
    found = scalars(tmp_path)
    assert found["begun"] == [(0, 1.0)]
    assert found["train/loss"] == [(1, 0.5), (2, 0.5)]
