"""The page of optimizers has a row for every name of `optim`, with the package and the trials of its declaration."""

from __future__ import annotations

from pathlib import Path

from ostinato.optim.optimizers import DECLARATIONS
from tests.support.optimizer_packages import describe_trial

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"


def build_rows() -> list[str]:
    rows = []
    for name, declared in DECLARATIONS.items():
        how = "nothing" if declared.package is None else declared.package.how
        rows.append(f"| `{name.value}` | `{declared.path}` | {how} | {describe_trial(name)} |")
    return rows


def test_every_optimizer_has_its_row() -> None:
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert table == build_rows()
