"""The peak performance of well-known accelerators, from their makers' data sheets.

Dense matrix products with sums in float32, as in training: half of figures "with sparsity", and for consumer cards
those with float32 accumulation. A device that is not listed, or is sold without one clear figure, is not guessed.
"""

from __future__ import annotations

TERA = 1e12

# Words in the name of a device, the more specific first; then 10^12 operations a second by number format.
_PEAKS: tuple[tuple[tuple[str, ...], dict[str, float]], ...] = (
    (("H200", "NVL"), {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60}),
    (("H200",), {"bf16": 989.5, "fp16": 989.5, "tf32": 494.5, "fp32": 67}),
    (("H100", "NVL"), {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60}),
    (("H100", "PCIe"), {"bf16": 756.5, "fp16": 756.5, "tf32": 378, "fp32": 51}),
    (("H100", "HBM3"), {"bf16": 989.5, "fp16": 989.5, "tf32": 494.5, "fp32": 67}),
    (("A100",), {"bf16": 312, "fp16": 312, "tf32": 156, "fp32": 19.5}),
    (("L40S",), {"bf16": 362, "fp16": 362, "tf32": 183, "fp32": 91.6}),
    (("L40",), {"bf16": 181, "fp16": 181, "tf32": 90.5, "fp32": 90.5}),
    (("L4",), {"bf16": 121, "fp16": 121, "tf32": 60, "fp32": 30.3}),
    (("A10",), {"bf16": 125, "fp16": 125, "tf32": 62.5, "fp32": 31.2}),
    (("A30",), {"bf16": 165, "fp16": 165, "tf32": 82, "fp32": 10.3}),
    (("V100", "SXM2"), {"fp16": 125, "fp32": 15.7}),
    (("V100", "PCIE"), {"fp16": 112, "fp32": 14}),
    (("T4",), {"fp16": 65, "fp32": 8.1}),
    (("RTX", "4090"), {"bf16": 165.2, "fp16": 165.2, "tf32": 82.6, "fp32": 82.6}),
    (("RTX", "3090"), {"bf16": 71, "fp16": 71, "tf32": 35.6, "fp32": 35.6}),
    (("RTX", "A6000"), {"bf16": 154.8, "fp16": 154.8, "tf32": 77.4, "fp32": 38.7}),
    (("MI300X",), {"bf16": 1307.4, "fp16": 1307.4, "tf32": 653.7, "fp32": 163.4}),
)
# Words of other cards that share a word with one above.
_OTHERS = frozenset({"Laptop", "D", "Ti", "MIG", "Super", "SUPER"})


def find_device_peak(device_name: str, numbers: str) -> float | None:
    """Return the operations a second of one device, for "bf16", "fp16", "tf32" or "fp32"; None if not known.

    >>> find_device_peak("NVIDIA A100-SXM4-80GB", "bf16")
    312000000000000.0
    >>> find_device_peak("NVIDIA A10G", "bf16") is None  # another card than the A10
    True
    """
    words = set(device_name.replace("-", " ").split())
    if words & _OTHERS:
        return None
    for wanted, peaks in _PEAKS:
        if words.issuperset(wanted):
            return peaks[numbers] * TERA if numbers in peaks else None
    return None
