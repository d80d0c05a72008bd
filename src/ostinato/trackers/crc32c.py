"""CRC-32C of short byte strings, without a loop over their bytes in Python."""

from __future__ import annotations

from functools import cache

import numpy as np

LONGEST = 4096  # bytes whose effects are looked up: the table takes 1 KiB for each
_POLYNOMIAL = 0x82F63B78  # its bits reversed
_ALL = 0xFFFFFFFF
_STARTS = 256 * np.arange(LONGEST)  # of the rows of a table


def crc32c(data: bytes) -> int:
    """The check of these bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if not 4 <= len(data) <= LONGEST:
        return _byte_by_byte(data)
    # What a byte does to the check depends on nothing but itself and the number of bytes that follow it.
    places = np.frombuffer(data, np.uint8)[::-1] + _STARTS[: len(data)]
    places[-4:] ^= 0xFF  # the check begins with all bits set, which is as if the first bytes were their opposites
    return int(np.bitwise_xor.reduce(_effects(1 << (len(data) - 1).bit_length()).take(places))) ^ _ALL


@cache
def _effects(length: int) -> np.ndarray:
    """Row after row what each byte does when 0, 1, 2... bytes follow."""
    rows = np.empty((length, 256), dtype=np.uint32)
    rows[0] = _LAST
    for number in range(1, length):
        rows[number] = _LAST[rows[number - 1] & 0xFF] ^ (rows[number - 1] >> 8)
    return rows.ravel()


def _byte_by_byte(data: bytes) -> int:
    check, effects = _ALL, _LAST.tolist()
    for byte in data:
        check = effects[(check ^ byte) & 0xFF] ^ (check >> 8)
    return check ^ _ALL


def _effects_of_the_last() -> np.ndarray:
    effects = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        effects = np.where(effects & 1, (effects >> 1) ^ _POLYNOMIAL, effects >> 1).astype(np.uint32)
    return effects


_LAST = _effects_of_the_last()
