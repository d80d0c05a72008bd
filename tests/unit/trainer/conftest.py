"""Only imports: the first optimizer of a process makes torch load its compiler, and that sets an environment variable;
and every run is seeded.
"""

from __future__ import annotations

import torch._dynamo  # noqa: F401
