"""Applies what grammars allow to the logits of the rows that have one, a float32 copy that is changed in place.

The grammar rules out first, so that `min_p` compares what is left. Where the grammar is at its end, that holds against all other stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as Row
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.changes import Line
from llmendpoint_server.engine.sampling.masks import Mask


def rule_out(logits: torch.Tensor, lines: Row[Line], masks: Mapping[Sequence, Mask]) -> None:
    """Set the logits of what the grammars do not allow to -inf. `logits` `[lines, vocabulary]`."""
    masked = [
        (place, mask.bits[len(line.guesses)])
        for place, line in enumerate(lines)
        if (mask := masks.get(line.sequence)) is not None and not mask.fault
    ]
    if not masked:
        return
    places = [place for place, _ in masked]
    bits = np.stack([row for _, row in masked])
    added = _added(bits.view(np.uint8), logits.device).view(len(places), -1)[:, : logits.shape[1]]
    if len(places) == len(lines):
        logits += added
    else:
        logits[places] += added


def _added(eights: npt.NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    if device.type == "cpu":  # one thread is faster than several, which would wait for each other
        return torch.from_numpy(np.take(_table(device).numpy(), eights, axis=0))
    return torch.nn.functional.embedding(torch.from_numpy(eights).to(device).int(), _table(device))


@cache
def _table(device: torch.device) -> torch.Tensor:
    """What each byte of a mask adds to the logits of its 8 tokens, the lowest bit first: 0 to an allowed one, else -inf. Several times as
    fast as masked_fill, and a logit that is not a number stays one."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return torch.from_numpy(np.where(bits, 0.0, -math.inf).astype(np.float32)).to(device)


def force_ends(logits: torch.Tensor, lines: Row[Line], masks: Mapping[Sequence, Mask]) -> None:
    """Where the grammar is at its end, only its end may follow, whatever the other stages said."""
    for place, line in enumerate(lines):
        mask = masks.get(line.sequence)
        if mask is not None and mask.ends and not line.guesses:
            logits[place] = -math.inf
            logits[place, list(mask.ends)] = 0.0
