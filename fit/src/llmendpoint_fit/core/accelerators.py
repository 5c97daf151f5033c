"""Accelerators by name. Memory is what the driver reports (nvidia-smi, rocm-smi, hl-smi), in MiB, and what the node
labels hold. It is below the nominal figure, because error correction and the driver take their share.

Bandwidth and dense 16-bit throughput are the makers' figures. docs/concepts/sizing.md says how and when each was
checked, and where the hourly prices come from. Prices differ and change: `--price` replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of accelerator. `bandwidth`: GB/s. `tflops`: dense, 16-bit floats. `hourly`: USD for one; None if no
    price was found. `words`: a product's name matches if it has all words of one of these sets."""

    name: str
    title: str
    kind: str
    memory_mib: int
    bandwidth: float
    tflops: float
    hourly: float | None
    words: tuple[frozenset[str], ...]

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.memory_mib * MIB


def _words(*texts: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(text.split()) for text in texts)


NVIDIA, AMD, GAUDI = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi"

ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator("t4", "NVIDIA T4", NVIDIA, 15_360, 320, 65, 0.526, _words("t4")),
    Accelerator("v100-16gb", "NVIDIA V100 16 GB", NVIDIA, 16_384, 900, 125, None, _words("v100 16gb")),
    Accelerator("v100-32gb", "NVIDIA V100 32 GB", NVIDIA, 32_768, 900, 125, 3.902, _words("v100 32gb")),
    Accelerator("a10", "NVIDIA A10", NVIDIA, 23_028, 600, 125, None, _words("a10")),
    Accelerator("a10g", "NVIDIA A10G", NVIDIA, 23_028, 600, 70, 1.006, _words("a10g")),
    Accelerator("l4", "NVIDIA L4", NVIDIA, 23_034, 300, 121, 0.805, _words("l4")),
    Accelerator("rtx-4090", "NVIDIA GeForce RTX 4090", NVIDIA, 24_564, 1_008, 165, None, _words("rtx 4090", "4090")),
    Accelerator("a100-40gb", "NVIDIA A100 40 GB", NVIDIA, 40_960, 1_555, 312, 2.745, _words("a100 40gb", "tesla a100")),
    Accelerator("l40s", "NVIDIA L40S", NVIDIA, 46_068, 864, 362, 1.861, _words("l40s")),
    Accelerator("rtx-6000-ada", "NVIDIA RTX 6000 Ada", NVIDIA, 49_140, 960, 364, None, _words("6000 ada")),
    Accelerator("a100-80gb", "NVIDIA A100 80 GB", NVIDIA, 81_920, 2_039, 312, 3.431, _words("a100 80gb")),
    Accelerator("h100-80gb", "NVIDIA H100 80 GB", NVIDIA, 81_559, 3_350, 989, 6.88, _words("h100 80gb", "h100")),
    Accelerator("h100-nvl", "NVIDIA H100 NVL", NVIDIA, 95_830, 3_900, 835, None, _words("h100 nvl")),
    Accelerator("h200", "NVIDIA H200", NVIDIA, 143_771, 4_800, 989, 7.912, _words("h200")),
    Accelerator("b200", "NVIDIA B200", NVIDIA, 183_359, 7_672, 2_250, 14.242, _words("b200")),
    Accelerator("mi250", "AMD Instinct MI250, one of its two dies", AMD, 65_520, 1_638, 181, None, _words("mi250", "mi250x")),
    Accelerator("mi300x", "AMD Instinct MI300X", AMD, 196_592, 5_300, 1_307, None, _words("mi300x")),
    Accelerator("mi325x", "AMD Instinct MI325X", AMD, 262_128, 6_000, 1_307, None, _words("mi325x")),
    Accelerator("gaudi2", "Intel Gaudi 2", GAUDI, 98_304, 2_450, 432, None, _words("gaudi2", "gaudi 2")),
    Accelerator("gaudi3", "Intel Gaudi 3", GAUDI, 131_072, 3_700, 1_835, None, _words("gaudi3", "gaudi 3")),
)  # fmt: skip

BY_NAME: Mapping[str, Accelerator] = {accelerator.name: accelerator for accelerator in ACCELERATORS}


def recognise(product: str) -> Accelerator | None:
    """The accelerator that a product name means: a name of this table, or one as in a node label,
    `NVIDIA-A100-SXM4-80GB`. The match with the most words wins. None if nothing or several match alike, and for a MIG
    slice, which is none of them."""
    exact = BY_NAME.get(product.lower())
    if exact is not None:
        return exact
    words = frozenset(re.findall(r"[a-z0-9]+", product.lower()))
    if "mig" in words:
        return None
    matches = [
        (max(len(w) for w in a.words if w <= words), a)
        for a in ACCELERATORS
        if any(w <= words for w in a.words)
    ]
    best = max((score for score, _ in matches), default=0)
    found = [accelerator for score, accelerator in matches if score == best]
    return found[0] if len(found) == 1 else None


def slice_memory(name: str) -> int | None:
    """Bytes of a MIG slice by its name: the resource's, `nvidia.com/mig-3g.40gb`, or the product's,
    `NVIDIA-A100-SXM4-80GB-MIG-3g.40gb`. A slice has a few percent more than that many times 10^9, so this is on the
    safe side. None for any other name."""
    found = re.search(r"[/-]mig-\d+g\.(\d+)gb", name, re.IGNORECASE)
    return int(found[1]) * 10**9 if found else None
