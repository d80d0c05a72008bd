"""The page of a search, from its record alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.cli import main
from ostinato.journal.study_record import DIRECTORY, NAME, NoStudyError, read_study
from ostinato.report.parameter_effects import compute_effect, compute_effects
from ostinato.report.search_page import render_study
from tests.support.studies import write_study


@pytest.mark.parametrize("directions", [("minimize",), ("minimize", "maximize")])
def test_the_page_shows_all_trials_and_trusts_no_text(tmp_path: Path, directions: tuple[str, ...]) -> None:
    write_study(tmp_path, directions)
    page = render_study(read_study(tmp_path))
    assert page.count("<code>run-") == 8
    assert "<img" not in page
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    assert "no end written" in page
    for heading in ("History", "Importance", "Parallel coordinates", "Trials"):
        assert f"<h2>{heading}</h2>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_command_writes_it_beside_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / DIRECTORY / "report.html").is_file()
    assert main(["report", str(tmp_path / DIRECTORY), "--out", str(tmp_path / "page.html")]) == 0
    assert "page.html" in capsys.readouterr().out


def test_a_search_without_a_complete_trial_has_a_page(tmp_path: Path) -> None:
    write_study(tmp_path, trials=1)
    page = render_study(read_study(tmp_path))
    assert "Importance" not in page


def test_a_damaged_record(tmp_path: Path) -> None:
    with pytest.raises(NoStudyError, match="no search"):
        read_study(tmp_path)
    write_study(tmp_path)
    path = tmp_path / DIRECTORY / NAME
    with path.open("ab") as file:
        file.write(
            b'{"v":1,"event":"end","study":"search","number":"x"}\n{"v":9,"event":"later","study":"search"}\n{"v"'
        )
    study = read_study(tmp_path)
    assert [one.state for one in study.trials[:4]] == ["complete", "complete", "failed", "pruned"]
    assert study.trials[-1].state == "running"
    assert [one.number for one in study.find_best()] == [0]


def test_what_decides_is_important(tmp_path: Path) -> None:
    write_study(tmp_path)
    effects = compute_effects(read_study(tmp_path))
    assert list(effects) == ["learning_rate", "optim"]
    assert compute_effect([1.0, 2.0, 3.0, 4.0] * 3, [1, 2, 3, 4] * 3) == 1.0
    assert compute_effect(["a", "b"] * 6, [0, 0, 1, 1] * 3) == 0.0
