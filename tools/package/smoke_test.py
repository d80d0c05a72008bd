"""Build the wheel and the source distribution, install each into an empty environment, and train there.

    python tools/package/smoke_test.py [--with-dependencies]

By default dependencies come from the environment that runs this, by a path file, so that nothing is downloaded; with
the option, pip installs them. The package itself is only what was built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, pathlib, sys
import torch
import ostinato
from ostinato import Trainer, TrainingArguments

assert pathlib.Path(ostinato.__file__).is_relative_to(sys.prefix), ostinato.__file__

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

rows = [{"x": x, "labels": int(x.sum() > 0)} for x in torch.randn(64, 2)]
args = TrainingArguments("out", max_steps=4, eval_strategy="steps", eval_steps=2, save_steps=2, use_cpu=True)
Trainer(Net(), args, train_dataset=rows, eval_dataset=rows, metrics=["accuracy"]).train()
Trainer(Net(), args, train_dataset=rows, eval_dataset=rows).train(resume_from_checkpoint=True)
assert pathlib.Path("out/report.html").is_file() and pathlib.Path("out/checkpoint-4/MANIFEST.json").is_file()
"""


def run(*command: str | Path, **options: object) -> str:
    """Run a command; return its output, raise with it if the command fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(directory: Path) -> list[Path]:
    """Build both distributions."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT)
    return [*directory.glob("*.whl"), *directory.glob("*.tar.gz")]


def check(package: Path, directory: Path, *, with_dependencies: bool) -> None:
    """Install a distribution into a new environment and use it there."""
    run(sys.executable, "-m", "venv", directory / "venv")
    python = directory / "venv" / "bin" / "python"
    if with_dependencies:
        run(python, "-m", "pip", "install", "-q", "torch")
        run(python, "-m", "pip", "install", "-q", package)
    else:
        own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        options = ["--no-deps", "--no-build-isolation"]
        Path(own, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
        run(python, "-m", "pip", "install", "-q", "--ignore-installed", *options, package)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "OMP_NUM_THREADS": "1"
    }
    version = run(directory / "venv" / "bin" / "ostinato", "--version", env=environment).split()[1]
    assert version in package.name, (version, package.name)
    run(python, "-c", PROGRAM, cwd=directory, env=environment)
    print(f"{package.name}: installed, {version}, trained and resumed")


def main() -> None:
    """Build and check both."""
    with tempfile.TemporaryDirectory() as scratch:
        built = build(Path(scratch) / "dist")
        for number, package in enumerate(built):
            directory = Path(scratch) / str(number)
            directory.mkdir()
            check(package, directory, with_dependencies="--with-dependencies" in sys.argv)
        (ROOT / "dist").mkdir(exist_ok=True)
        for package in built:
            shutil.copy(package, ROOT / "dist")


if __name__ == "__main__":
    main()
