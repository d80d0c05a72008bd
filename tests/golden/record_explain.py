"""Write the golden journeys anew: `python tests/golden/record_explain.py`. Read the difference first."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import torch
from apis import load_library
from explained import MISTAKES, PAIRS


def main() -> None:
    torch.set_num_threads(1)
    load_library("transformers")
    for name, build in {**PAIRS, **MISTAKES}.items():
        text = str(build(Path("unused")).explain())
        (Path(__file__).parent / "explain" / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
