"""The part that a micro-batch has in the loss of its step."""

from __future__ import annotations

import math
from typing import Protocol


class Share(Protocol):
    """The part that a micro-batch has in the loss of its step."""

    @property
    def divisor(self) -> float:
        """Step's weight / (own weight x processes); infinite: no weight. Other processes may be waited for."""
        ...

    @property
    def weighs_nothing(self) -> bool:
        """Whether the micro-batch has no targets, or is a padding batch. Nobody is waited for."""
        ...


class KnownShare:
    """A part that is known already."""

    def __init__(self, divisor: float) -> None:
        self.divisor, self.weighs_nothing = divisor, divisor == math.inf
