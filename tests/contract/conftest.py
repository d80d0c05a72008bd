"""Only an import: both libraries seed for every run."""

from __future__ import annotations

import cheap_seeding  # noqa: F401
