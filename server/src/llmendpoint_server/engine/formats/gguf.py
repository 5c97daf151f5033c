"""GGUF files: a header that is checked here, before transformers reads the file with the `gguf` package and dequantizes it.

Layout: magic, version, counts of tensors and of keys; the keys with their values; the tensors' names, sizes, types and places; their data.
The counts and lengths come from the file: each is held against the file's size before anything is made of it. Source:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from llmendpoint_server.engine.formats.groups import BadWeights

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 2**16
MOST_TENSORS = 2**16
MOST_DIMENSIONS = 4
LONGEST_NAME = 2**16
STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by its type. `STRING` and `ARRAY` begin with their length."""
SMALLEST_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Contents:
    """`types`: how many tensors there are of each type."""

    architecture: str
    types: dict[str, int]


def check_file(path: Path) -> Contents:
    """Raises BadWeights for a file that is no GGUF, is cut short, or whose header cannot be true."""
    size = path.stat().st_size
    if size < 24:
        raise BadWeights(f"{path.name} has {size} bytes, and is no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(data, path.name).contents()


class _Reader:
    def __init__(self, data: mmap.mmap, name: str) -> None:
        self._data, self._name, self._at = data, name, 0

    def contents(self) -> Contents:
        if self._data[:4] != MAGIC:
            raise BadWeights(f"{self._name} does not begin with {MAGIC.decode()}: it is no GGUF file")
        self._at = 4
        version, tensors, keys = self._number("I"), self._number("Q"), self._number("Q")
        if version not in VERSIONS:
            raise BadWeights(
                f"{self._name} is GGUF of version {version}; {' and '.join(map(str, VERSIONS))} are read"
            )
        if tensors > MOST_TENSORS or keys > MOST_KEYS:
            raise BadWeights(
                f"{self._name} says that it has {tensors} tensors and {keys} keys: at most {MOST_TENSORS} of each are read"
            )
        architecture = ""
        for _ in range(keys):
            key, kind = self._text(LONGEST_NAME), self._number("I")
            if key == "general.architecture" and kind == STRING:
                architecture = self._text(LONGEST_NAME)
            else:
                self._skip(kind)
        if not architecture:
            raise BadWeights(f"{self._name} has no general.architecture")
        if not tensors:
            raise BadWeights(f"{self._name} has no tensors: it is a vocabulary only")
        return Contents(architecture, self._tensors(tensors))

    def _tensors(self, count: int) -> dict[str, int]:
        types: Counter[str] = Counter()
        end = 0
        for _ in range(count):
            name = self._text(LONGEST_NAME)
            dimensions = self._number("I")
            if not 1 <= dimensions <= MOST_DIMENSIONS:
                raise BadWeights(
                    f"{self._name}: {name[:100]} has {dimensions} dimensions; 1 to {MOST_DIMENSIONS} are read"
                )
            shape = [self._number("Q") for _ in range(dimensions)]
            kind, offset = self._number("I"), self._number("Q")
            try:
                known = GGMLQuantizationType(kind)
                each, block = GGML_QUANT_SIZES[known]
            except (ValueError, KeyError):
                raise BadWeights(
                    f"{self._name}: {name[:100]} has the type {kind}, which is not known"
                ) from None
            if shape[0] % each:
                raise BadWeights(f"{self._name}: {name[:100]} has rows of {shape[0]}, no multiple of {each}")
            end = max(end, offset + math.prod(shape) // each * block)
            types[known.name] += 1
        if self._at + end > len(self._data) + SMALLEST_ALIGNMENT:
            raise BadWeights(
                f"{self._name} has {len(self._data)} bytes, and its tensors need {self._at + end}: it is cut short; copy or "
                "download it again"
            )
        return dict(types)

    def _take(self, size: int) -> int:
        """The place of the next `size` bytes."""
        at = self._at
        if size > len(self._data) - at:
            raise BadWeights(f"{self._name} ends in its header: at byte {at} it says that {size} more follow")
        self._at += size
        return at

    def _number(self, kind: str) -> int:
        one = struct.Struct(f"<{kind}")
        return int(one.unpack_from(self._data, self._take(one.size))[0])

    def _text(self, most: int) -> str:
        length = self._number("Q")
        if length > most:
            raise BadWeights(f"{self._name} has a name of {length} bytes; at most {most} are read")
        at = self._take(length)
        return self._data[at : at + length].decode("utf-8", "replace")

    def _skip(self, kind: int) -> None:
        if kind == STRING:
            self._take(self._number("Q"))
        elif kind == ARRAY:
            inner, count = self._number("I"), self._number("Q")
            if inner == STRING:
                for _ in range(count):  # each takes 8 bytes of the file or more
                    self._take(self._number("Q"))
            else:
                self._take(count * self._size(inner))
        else:
            self._take(self._size(kind))

    def _size(self, kind: int) -> int:
        if kind not in SIZES:
            raise BadWeights(
                f"{self._name}: at byte {self._at} is a value of the type {kind}, which is not read"
            )
        return SIZES[kind]
