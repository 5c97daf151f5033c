"""Applies what grammars allow to the logits of the rows that have one, a float32 copy that is changed in place.

The grammar rules out first, so that `min_p` compares what is left. Where the grammar is at its end, that holds against all other stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as Row

import numpy as np
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
    ruled_out = torch.from_numpy(
        np.unpackbits(~bits.view(np.uint8), axis=1, bitorder="little").view(np.bool_)
    )
    ruled_out = ruled_out[:, : logits.shape[1]].to(logits.device, non_blocking=True)
    if len(places) == len(lines):
        logits.masked_fill_(ruled_out, -math.inf)
    else:
        logits[places] = logits[places].masked_fill_(ruled_out, -math.inf)


def force_ends(logits: torch.Tensor, lines: Row[Line], masks: Mapping[Sequence, Mask]) -> None:
    """Where the grammar is at its end, only its end may follow, whatever the other stages said."""
    for place, line in enumerate(lines):
        mask = masks.get(line.sequence)
        if mask is not None and mask.ends and not line.guesses:
            logits[place] = -math.inf
            logits[place, list(mask.ends)] = 0.0
