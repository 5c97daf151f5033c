"""The fields of a body that change what is drawn, beside temperature, top_p and top_k. Their names are OpenAI's and vLLM's."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from llmendpoint_server import limits
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.shown_fields import ShownFields
from llmendpoint_server.errors import InvalidRequest

_Penalty = Annotated[float, Meta(ge=limits.PENALTY_MIN, le=limits.PENALTY_MAX)]
_Bias = Annotated[float, Meta(ge=limits.LOGIT_BIAS_MIN, le=limits.LOGIT_BIAS_MAX)]

FORMS: dict[str, str] = {
    "frequency_penalty": f"a number from {limits.PENALTY_MIN:g} to {limits.PENALTY_MAX:g}",
    "presence_penalty": f"a number from {limits.PENALTY_MIN:g} to {limits.PENALTY_MAX:g}",
    "repetition_penalty": f"a number from {limits.REPETITION_PENALTY_MIN:g} to {limits.REPETITION_PENALTY_MAX:g}",
    "min_p": f"a number from {limits.MIN_P_MIN:g} to {limits.MIN_P_MAX:g}",
    "logit_bias": f"an object of at most {limits.LOGIT_BIAS_TOKENS_MAX} token ids, each with a number from "
    f"{limits.LOGIT_BIAS_MIN:g} to {limits.LOGIT_BIAS_MAX:g}",
    "min_tokens": f"a whole number from 0 to {limits.MAX_TOKENS_MAX}, and at most max_tokens",
}
"""What each field must be."""


class SamplingFields(ShownFields, forbid_unknown_fields=True):
    """None: not given."""

    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    repetition_penalty: Annotated[
        float, Meta(ge=limits.REPETITION_PENALTY_MIN, le=limits.REPETITION_PENALTY_MAX)
    ] | None = None  # fmt: skip
    min_p: Annotated[float, Meta(ge=limits.MIN_P_MIN, le=limits.MIN_P_MAX)] | None = None
    logit_bias: Annotated[dict[int, _Bias], Meta(max_length=limits.LOGIT_BIAS_TOKENS_MAX)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=limits.MAX_TOKENS_MAX)] | None = None

    def changes(self, defaults: SamplingDefaults, vocab_size: int) -> dict[str, Any]:
        """The arguments of SamplingParams that these fields and the model's defaults give. Raises InvalidRequest for a token that
        the model does not have."""
        bias = self.logit_bias or {}
        if bias and not 0 <= min(bias) <= max(bias) < vocab_size:
            raise InvalidRequest(
                f"logit_bias holds token ids outside 0 to {vocab_size - 1}.", param="logit_bias"
            )
        given = {
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "repetition_penalty": _or(self.repetition_penalty, defaults.repetition_penalty),
            "min_p": _or(self.min_p, defaults.min_p),
            "min_tokens": self.min_tokens,
            "logit_bias": tuple(bias.items()),
        }
        return {name: value for name, value in given.items() if value is not None}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
