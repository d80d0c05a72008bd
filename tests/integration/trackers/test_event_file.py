"""Event files, read by TensorBoard's readers."""

from __future__ import annotations

from importlib import import_module

import pytest

from ostinato import TrainerCallback, TrainingArguments
from tests.support.event_files import read_numbers
from tests.support.tiny import regression, regression_rows

pytest.importorskip("tensorboard")


@pytest.mark.filterwarnings("ignore")
def test_a_writer_used_later_continues_in_order(tmp_path) -> None:
    """Readers follow one file of a directory after the other, and never go back."""
    ostinato = import_module("ostinato")

    class Draws(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            if state.global_step == 3:
                trainer.callback_handler.pop_callback(Draws)
                (board,) = [
                    one for one in trainer.callback_handler.callbacks if isinstance(one, ostinato.TensorBoardCallback)
                ]
                board.tb_writer.add_scalar("mine", 4.0, state.global_step)

    args = TrainingArguments(
        str(tmp_path), max_steps=6, logging_steps=1, report_to="tensorboard", use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_dir=str(tmp_path / "board"),
    )  # fmt: skip
    trainer = ostinato.Trainer(regression(), args, train_dataset=regression_rows(), callbacks=[Draws])
    trainer.train()
    found = read_numbers(tmp_path / "board")
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert found["mine"] == [(3, 4.0)]
    assert len(list((tmp_path / "board").iterdir())) == 2
