"""The pretended device of a session of tests: in its own process, and in those that tests start.

It is hostile in all of them: what may happen late does.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support import pretend_device

VARIABLE = "OSTINATO_TEST_DEVICE"  # the kind of the device, for processes that tests start
ROOT = Path(__file__).parents[2]
CHILD_SITE = Path(__file__).with_name("child_site")  # what makes Python run `install_here` when it starts


def begin_session(kind: str) -> None:
    """Give this process and those that it starts a pretended device."""
    os.environ[VARIABLE] = kind
    if kind == "privateuse1":  # which transformers does not look for
        os.environ["ACCELERATE_TORCH_DEVICE"] = f"{pretend_device.PRETENDED_NAME}:0"
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(CHILD_SITE) not in before:  # a process of xdist has it from the first
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHILD_SITE), str(ROOT), *before]))
    install_here()


def install_here() -> None:
    """Give this process the device that its environment names, unless it has it."""
    kind = os.environ.get(VARIABLE)
    if kind and not pretend_device.is_installed():
        pretend_device.install(kind)
        pretend_device.set_hostile(True)
