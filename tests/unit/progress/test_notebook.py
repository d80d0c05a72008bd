"""Progress in a real notebook kernel: one display per run, nothing printed beside it, and no harm in a second run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

SET_UP = """
import torch
from ostinato import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        prediction = self.layer(x).squeeze(-1)
        return {"loss": ((prediction - labels) ** 2).mean(), "logits": prediction}

draw = torch.Generator().manual_seed(0)
rows = [{"x": torch.randn(4, generator=draw), "labels": torch.tensor(float(i % 2))} for i in range(32)]
args = TrainingArguments(OUT, use_cpu=True, max_steps=12, logging_steps=3, eval_strategy="steps", eval_steps=6,
                         save_strategy="no", metric_for_best_model="loss", learning_rate=0.05)
trainer = Trainer(Net(), args, train_dataset=rows, eval_dataset=rows[:8])
[type(callback).__name__ for callback in trainer.callback_handler.callbacks]
"""

INTERRUPTED = """
from ostinato import TrainerCallback

class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise KeyboardInterrupt

args.logging_steps = 10
args.eval_strategy = "no"
broken = Trainer(Net(), args, train_dataset=rows, callbacks=[Stop])
try:
    broken.train()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("notebook")
    sources = [
        f"OUT = {str(folder / 'out')!r}{SET_UP}",
        "trainer.train();",
        "trainer.train();",
        "trainer.evaluate();",
        "quiet = Trainer(Net(), TrainingArguments(OUT + '2', use_cpu=True, max_steps=2, disable_tqdm=True, "
        "save_strategy='no', logging_steps=1), train_dataset=rows)\nquiet.train();",
        INTERRUPTED,
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    return notebook.cells


def pages(cell: Any) -> list[str]:
    return [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def printed(cell: Any) -> str:
    return "".join(
        output["text"] for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"
    )


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_notebook_callback_is_the_default_in_a_notebook(cells: Any) -> None:
    assert "NotebookProgressCallback" in cells[0].outputs[-1]["data"]["text/plain"]
    assert "'ProgressCallback'" not in cells[0].outputs[-1]["data"]["text/plain"]


def test_a_run_is_one_display(cells: Any) -> None:
    (page,) = pages(cells[1])
    assert printed(cells[1]) == ""
    text = text_of(page)
    assert text.startswith("training Net on cpu in float32: 5 parameters, 32 rows, 12 steps of 8 rows step 12/12")
    assert "step loss learning_rate grad_norm eval_loss" in text
    assert len(re.findall("<tr", page)) == 5  # the names, and four steps that were logged
    assert len(re.findall("<polyline", page)) == 2
    assert re.search(r"done in 0:\d\d: best loss 0\.\d+ at step 12; results in", text)
    assert "<script" not in page
    assert "http" not in page


def test_a_second_run_is_another(cells: Any) -> None:
    assert len(pages(cells[2])) == 1
    assert "step 12/12" in text_of(pages(cells[2])[0])


def test_an_evaluation_alone_is_a_line(cells: Any) -> None:
    assert pages(cells[3]) == []
    assert re.fullmatch(r"step 12 epoch 3\.00 eval_loss .*\n", printed(cells[3]))


def test_disable_tqdm_prints(cells: Any) -> None:
    assert pages(cells[4]) == []
    assert printed(cells[4]).startswith("{'loss': ")


def test_the_best_row_is_marked_though_nothing_is_saved(cells: Any) -> None:
    (page,) = pages(cells[1])
    (row,) = re.findall(r"<tr style='font-weight: bold'>(.*?)</tr>", page)
    assert text_of(row).startswith("12 ")
    assert text_of(row).endswith(" best")


def test_an_interrupted_run_says_so_and_shows_its_first_loss(cells: Any) -> None:
    (page,) = pages(cells[5])
    text = text_of(page)
    assert re.search(r"step 2/12 · epoch 0\.50 · first loss \d", text)
    assert re.search(r"interrupted after 0:\d\d$", text)
    assert " left" not in text
    assert printed(cells[5]) == "interrupted\n"
