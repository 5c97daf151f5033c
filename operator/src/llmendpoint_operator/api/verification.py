"""Questions that a new revision must answer well before it gets requests: spec.rollout.verification."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, map_list, rule, rules, set_list

REGEX_RULE = rule(
    "''.matches(self) || !''.matches(self)",
    "rollout.verification.prompts[].expect.matches must be a regular expression in RE2's syntax (no look-around, no "
    "back-references); for example (?i)paris",
)
EXPECT_RULE = rule(
    "has(self.contains) || has(self.matches) || has(self.equals)",
    "rollout.verification.prompts[].expect needs contains, matches or equals; for example expect: {contains: [Paris]}",
)
PROMPT_RULE = rule(
    "has(self.expect) || has(self.compare)",
    "rollout.verification.prompts[] needs expect (what the answer must hold) or compare (with what the old revision "
    "answers); for example expect: {contains: [Paris]}",
)
JUDGE_RULE = rule(
    "self.mode == 'Judge' ? has(self.endpoint) : !has(self.endpoint) && !has(self.instruction)",
    "rollout.verification.prompts[].compare with mode: Judge needs endpoint: <namespace>/<name> or the base URL of an "
    "OpenAI API; the other modes take neither endpoint nor instruction",
)
SIMILARITY_RULE = rule(
    "self.mode == 'Similarity' || !has(self.minSimilarity)",
    "rollout.verification.prompts[].compare.minSimilarity belongs to mode: Similarity; write that mode or leave it out",
)


class Expectation(ApiModel, json_schema_extra=rules(EXPECT_RULE)):
    """What an answer must be like; all that is given must hold."""

    contains: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
        Field(min_length=1, max_length=16, json_schema_extra=set_list()),
    ] | None = None  # fmt: skip
    """Texts that must all occur in the answer, in this spelling."""
    matches: Annotated[
        str, Field(min_length=1, max_length=512, json_schema_extra=rules(REGEX_RULE))
    ] | None = None  # fmt: skip
    """Regular expression (RE2) that must match somewhere in the answer; `^` and `$` bind it to the ends."""
    equals: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """The whole answer, without white space at its ends."""


class Comparison(ApiModel, json_schema_extra=rules(JUDGE_RULE, SIMILARITY_RULE)):
    """How the answer must compare with what the old revision answers to the same prompt. Skipped for a first revision."""

    mode: Literal["Exact", "Similarity", "Judge"]
    """Exact: the same text. Similarity: at least `minSimilarity`. Judge: another model says whether the new answer is
    as good."""
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least similarity of the two texts, from 0 to 1 (Similarity). Absent: 0.8."""
    endpoint: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The judge: `<namespace>/<name>` of an LLMEndpoint of the same namespace, or of one that the platform allows
    (chart value judge.allowedNamespaces), or the base URL of an OpenAI API on an allowed host (judge.allowedHosts)
    (Judge)."""
    instruction: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """What the judge is told to look at, in your words (Judge)."""


class Prompt(ApiModel, json_schema_extra=rules(PROMPT_RULE)):
    """One question that a new revision must answer well before it gets requests."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the prompt, as conditions and Events show it."""
    prompt: Annotated[str, Field(min_length=1, max_length=8192)]
    """The question, sent as one user message with temperature 0."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Tokens of the answer at most."""
    expect: Expectation | None = None
    """What the answer must be like."""
    compare: Comparison | None = None
    """How the answer must compare with the old revision's."""


class VerificationSpec(ApiModel):
    """Questions to a new revision before it gets requests. Without prompts, the warm-up generation that makes a pod
    Ready is the whole verification."""

    prompts: Annotated[tuple[Prompt, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """The questions. The first wrong answer rejects the revision."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds in which each must be answered; more than 600 count as 600."""
    verify_at_zero: bool = True
    """Whether a new revision of an endpoint that is scaled to zero starts one replica to be verified, and goes back to
    zero after."""
