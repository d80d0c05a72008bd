"""Seeding without a stack trace: importing this is enough.

On a machine without an accelerator torch keeps, at every `manual_seed` and for each kind of accelerator, the text of
the whole stack, to be shown should one turn up and fail. Under pytest stacks are deep: it costs more than some steps.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch.cuda
import torch.mtia
import torch.xpu

for _accelerator in (torch.cuda, torch.mtia, torch.xpu):
    _accelerator.traceback = SimpleNamespace(format_stack=list)  # type: ignore[attr-defined]
