"""Files that other code writes into the directory of a checkpoint before the checkpoint exists.

A subclass may write `checkpoint-20/samples.json` and then call `super()._save_checkpoint`. The checkpoint is written
beside that directory and takes its name, so such files are copied into it first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .atomic import has_manifest, list_sealed_files


def copy_early_files(target: Path, scratch: Path) -> list[str]:
    """Copy the files of `target` that no save has written into `scratch`, where they are not yet; return their names.

    >>> copy_early_files(Path("out/checkpoint-20"), Path("out/.checkpoint-20.partial"))  # doctest: +SKIP
    ['samples.json']
    """
    saved, copied = list_sealed_files(target), []
    if not saved and has_manifest(target):  # a damaged checkpoint: which of its files a save has written is not known
        return []
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        place = scratch / name
        if name in saved or not path.is_file() or os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)  # of a link, the file that it leads to
        copied.append(name)
    return copied
