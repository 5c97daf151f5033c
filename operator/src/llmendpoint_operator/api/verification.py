"""Questions that a new revision must answer well before it gets requests: spec.rollout.verification."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, map_list, rule, rules, set_list

REGEX_RULE = rule(
    "''.matches(self) || !''.matches(self)",
    "rollout.verification.prompts[].expect.matches must be a regular expression in RE2 syntax (no look-around, no "
    "back-references); for example (?i)paris",
)
EXPECT_RULE = rule(
    "has(self.contains) || has(self.matches) || has(self.equals)",
    "rollout.verification.prompts[].expect needs contains, matches or equals; for example expect: {contains: "
    "[Paris]}",
)
PROMPT_RULE = rule(
    "has(self.expect) || has(self.compare)",
    "rollout.verification.prompts[] needs expect (what the answer must contain) or compare (with the answer of "
    "the old revision); for example expect: {contains: [Paris]}",
)
JUDGE_RULE = rule(
    "self.mode == 'Judge' ? has(self.endpoint) : !has(self.endpoint) && !has(self.instruction)",
    "rollout.verification.prompts[].compare with mode: Judge needs endpoint: <namespace>/<name> or the base URL of an "
    "OpenAI API; the other modes take neither endpoint nor instruction",
)
SIMILARITY_RULE = rule(
    "self.mode == 'Similarity' || !has(self.minSimilarity)",
    "rollout.verification.prompts[].compare.minSimilarity needs mode: Similarity; write that mode or leave "
    "minSimilarity out",
)
EXACT_RULE = rule(
    "!has(self.compare) || self.compare.mode != 'Exact' || self.temperature == 0.0",
    "rollout.verification.prompts[].compare with mode: Exact needs temperature: 0, because at other temperatures good "
    "answers differ; leave temperature out, or write mode: Similarity",
)
SAMPLES_RULE = rule(
    "!has(self.compare) || self.compare.mode != 'Similarity' || self.temperature == 0.0 || !has(self.samples) || "
    "self.samples >= 5",
    "rollout.verification.prompts[].compare with mode: Similarity and a temperature above 0 needs samples: 5 or more, "
    "because fewer answers do not show how much they vary; leave samples out for 8",
)
PASSING_RULE = rule(
    "!has(self.minPassing) || (has(self.expect) && self.minPassing <= (has(self.samples) ? self.samples : "
    "self.temperature == 0.0 ? 1 : 8))",
    "rollout.verification.prompts[].minPassing needs expect, and is at most samples; for example samples: 8 with "
    "minPassing: 7",
)


class Expectation(ApiModel, json_schema_extra=rules(EXPECT_RULE)):
    """What the answer must be like. All fields that are set must hold."""

    contains: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
        Field(min_length=1, max_length=16, json_schema_extra=set_list()),
    ] | None = None  # fmt: skip
    """Texts that must all occur in the answer, with the same upper and lower case."""
    matches: Annotated[
        str, Field(min_length=1, max_length=512, json_schema_extra=rules(REGEX_RULE))
    ] | None = None  # fmt: skip
    """Regular expression (RE2) that must match somewhere in the answer. `^` and `$` stand for its start and end."""
    equals: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """The whole answer, without white space at its ends."""


class Comparison(ApiModel, json_schema_extra=rules(JUDGE_RULE, SIMILARITY_RULE)):
    """How the answer must compare with the answer of the old revision to the same prompt. A first revision is not
    compared."""

    mode: Literal["Exact", "Similarity", "Judge"]
    """How the answers are compared. `Exact`: the texts must be the same. Of several samples, at least half must be texts
    that the old revision gave, too. `Similarity`: their similarity must be enough, as `minSimilarity` says. `Judge`:
    another model says whether the new answer is as good. Of several samples, at least half must be."""
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = None
    """Similarity that is always enough, from 0 to 1. Only with mode Similarity. If not set: 0.8. With one sample, an answer
    below it fails. With several samples it is compared with the mean similarity to the old revision's answers. A mean
    below it fails only if the old revision's answers are more like each other, and that is not by chance."""
    endpoint: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The model that judges. Only with mode Judge, which needs it. `<namespace>/<name>`: an LLMEndpoint of the same
    namespace, or of one in the chart value judge.allowedNamespaces. `https://<host>/v1`: the base URL of an OpenAI
    API on a host in the chart value judge.allowedHosts."""
    instruction: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """What the judge should look at, in your words. Only with mode Judge."""


SAMPLES = 8
"""Of a prompt with a temperature above 0, if it does not say how many. Two revisions with fully different answers then show it
at 1 in 6,435, which is enough for 16 prompts that share a rate of 1 %."""


class Prompt(ApiModel, json_schema_extra=rules(PROMPT_RULE, EXACT_RULE, SAMPLES_RULE, PASSING_RULE)):
    """One prompt that a new revision must answer well before it gets requests."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the prompt. Conditions and Events show it."""
    prompt: Annotated[str, Field(min_length=1, max_length=8192)]
    """The prompt. It is sent as one user message."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Largest number of tokens of the answer."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Temperature of the answers. With 0 the most likely answer is asked for."""
    samples: Annotated[int, Field(ge=1, le=10)] | None = None
    """Number of answers to ask the new revision for, each with another seed. With `compare` the old revision is asked for
    as many. If not set: 1 with temperature 0, otherwise 8. Several answers are useful with temperature 0, too, if the
    engine's answers vary with its load."""
    min_passing: Annotated[int, Field(ge=1, le=10)] | None = None
    """Number of samples that must be as `expect` says. Only with `expect`. If not set: all."""
    expect: Expectation | None = None
    """What the answer must be like. All fields that are set must hold."""
    compare: Comparison | None = None
    """How the answer must compare with the answer of the old revision to the same prompt. A first revision is not
    compared."""

    @property
    def answers(self) -> int:
        """Number of answers to ask a revision for."""
        return self.samples or (SAMPLES if self.temperature > 0 else 1)

    @property
    def passing(self) -> int:
        """Number of answers that must be as expected."""
        return self.min_passing or self.answers

    @property
    def tested(self) -> bool:
        """Whether the old revision's answers among themselves are the bound for the new ones."""
        return self.compare is not None and self.compare.mode == "Similarity" and self.answers > 1


class VerificationSpec(ApiModel):
    """Questions to a new revision before it gets requests. Without prompts, the warm-up generation that makes a pod
    Ready is the whole verification."""

    prompts: Annotated[tuple[Prompt, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """The prompts. The first prompt that fails rejects the revision."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds in which each answer must come. Several samples of a prompt have this time each. More than 600 counts as
    600."""
    verify_at_zero: bool = True
    """Start one replica to verify a new revision even if the endpoint is scaled to zero. The endpoint goes back to
    zero after it."""
