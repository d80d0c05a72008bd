"""Write the golden journeys anew: `python -m tests.golden.record_explain`. Read the difference first."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.apis import load_library
from tests.support.explain_cases import MISTAKES, PAIRS


def main() -> None:
    torch.set_num_threads(1)
    load_library("transformers")
    for name, build in {**PAIRS, **MISTAKES}.items():
        text = str(build(Path("unused")).explain())
        (Path(__file__).parent / "explain" / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
