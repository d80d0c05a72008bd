"""`python -m ostinato`, the same as `ostinato`."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
