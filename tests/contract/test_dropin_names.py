"""Names of transformers that scripts use beside the Trainer: under the drop-in they do what they do without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dropin_runs import run_both_ways

pytest.importorskip("transformers")


def test_checkpoints_of_any_shape_are_sorted_and_rotated(tmp_path: Path) -> None:
    """Libraries have checkpoints of their own, which hold neither our manifest nor transformers' state."""
    theirs, ours = run_both_ways(
        """
        import os, shutil
        from pathlib import Path
        from transformers.trainer_utils import get_last_checkpoint, rotate_checkpoints, sort_checkpoints

        def fill(*files):
            shutil.rmtree("out", ignore_errors=True)
            for age, step in enumerate((5, 10, 20, 3)):
                directory = Path("out", f"checkpoint-{step}")
                directory.mkdir(parents=True)
                for name in files:
                    (directory / name).write_text("{}")
                os.utime(directory, (1000 - age, 1000 - age))
            Path("out", "checkpoint-99").write_text("a file")

        def rotated(*files, **options):
            fill(*files)
            rotate_checkpoints("out", **options)
            return sorted(os.listdir("out"))

        result = []
        best = os.path.join("out", "checkpoint-3")
        for files in ((), ("model.safetensors",), ("model.safetensors", "trainer_state.json")):
            fill(*files)
            result += [
                get_last_checkpoint("out"),
                sort_checkpoints("out"),
                sort_checkpoints("out", use_mtime=True),
                sort_checkpoints("out", best_model_checkpoint=best),
                sort_checkpoints("out", checkpoint_prefix="mine"),
                rotated(*files),
                rotated(*files, save_total_limit=2),
                rotated(*files, save_total_limit=2, use_mtime=True),
                rotated(*files, save_total_limit=1, best_model_checkpoint=best),
            ]
        result.append(sort_checkpoints("not there"))
        """,
        tmp_path,
    )
    assert ours.result == theirs.result
    assert theirs.result[6] == ["checkpoint-10", "checkpoint-20", "checkpoint-99"]
