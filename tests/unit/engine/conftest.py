"""Only an import: the first optimizer of a process makes torch load this, and that sets an environment variable."""

from __future__ import annotations

import torch._dynamo  # noqa: F401
