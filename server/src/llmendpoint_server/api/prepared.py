"""What one body asks for, without the body itself; and its sampling parameters and its view, checked against the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmendpoint_server import limits
from llmendpoint_server.api.deltas import AnswerReader
from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.interfaces import Tokenizer
from llmendpoint_server.api.logprobs import Namer
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.schemas import CompletionBody, GenerationBody
from llmendpoint_server.api.view import View
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.errors import InvalidRequest, PromptTooLong
from llmendpoint_server.protocol import Loaded


@dataclass(frozen=True)
class Prepared:
    """`arrived`: when the body was whole (monotonic seconds)."""

    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingParams
    stops: tuple[str, ...]
    stream: bool
    salt: str
    arrived: float
    grammar: Asked | None
    view: View
    skip_special: bool = True
    reader: Callable[[], AnswerReader] | None = None
    """makes what finds calls of tools and reasoning in an answer; None: it is all text"""

    markers: frozenset[str] = frozenset()
    """special tokens whose text the reader needs"""

    adapter: str = ""
    """the name of the LoRA adapter that is asked for; "": none"""

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def make_reader(self) -> AnswerReader | None:
        return None if self.reader is None else self.reader()


def check_ids(field: str, ids: Sequence[int], loaded: Loaded) -> None:
    size = loaded.vocab_size
    if ids and not 0 <= min(ids) <= max(ids) < size:
        raise InvalidRequest(f"{field} holds token ids outside 0 to {size - 1}.", param=field)


def make_sampling(
    body: GenerationBody,
    prompts: Sequence[tuple[int, ...]],
    loaded: Loaded,
    defaults: SamplingDefaults,
    grammar: Grammar | None,
) -> SamplingParams:
    """Raises InvalidRequest."""
    field = body.prompt_field
    if not all(prompts):
        raise InvalidRequest(f"{field} is empty; send at least one token.", param=field)
    longest = max(map(len, prompts))
    room = loaded.max_model_len - longest
    if room < 1:
        raise PromptTooLong(longest, loaded.max_model_len, field)
    for prompt in prompts:
        check_ids(field, prompt, loaded)
    _check_room(body, len(prompts), loaded)
    check_ids("stop_token_ids", body.stop_token_ids or (), loaded)
    top_k = defaults.top_k if body.top_k is None else body.top_k
    most = body.most_tokens
    sampling = SamplingParams(
        max_tokens=max(1, min(room if most is None else most, room, defaults.max_tokens or room)),
        temperature=defaults.temperature if body.temperature is None else body.temperature,
        top_p=defaults.top_p if body.top_p is None else body.top_p,
        top_k=0 if top_k in limits.TOP_K_OFF else top_k,
        seed=body.seed,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=body.alternatives,
        prompt_logprobs=body.prompt_alternatives,
        grammar=grammar,
        **body.changes(defaults, loaded.vocab_size),
    )
    _check_logprobs(body, prompts, sampling)
    return sampling


def _check_room(body: GenerationBody, prompts: int, loaded: Loaded) -> None:
    """Each prompt is a request of its own to the engine. More than an idle engine takes would be 429 for ever. Raises
    InvalidRequest."""
    most = loaded.max_queued_requests + loaded.max_num_seqs
    if prompts > 1 and prompts * body.answers > most:
        raise InvalidRequest(
            f"{body.prompt_field} holds {prompts} prompts, with n {body.answers}; this server takes at most {most} answers at a "
            "time (--max-queued-requests and --max-num-seqs): send fewer prompts in a request.",
            param=body.prompt_field,
        )


def _check_logprobs(
    body: GenerationBody, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams
) -> None:
    """What is kept of an answer until its end has a bound. Raises InvalidRequest."""
    if sampling.prompt_logprobs is not None:
        field = "prompt_logprobs" if body.prompt_logprobs is not None else "logprobs"
        each = 1 + sampling.prompt_logprobs
        times = body.answers if isinstance(body, CompletionBody) else 1  # each answer shows its prompt's
        shown = "all prompts" if times == 1 else f"all prompts, with each of {times} answers"
        for what, tokens, most in (
            ("the longest prompt", max(map(len, prompts)), limits.PROMPT_LOGPROBS_VALUES_MAX),
            (shown, times * sum(map(len, prompts)), limits.LOGPROBS_VALUES_MAX),
        ):
            if tokens * each > most:
                raise InvalidRequest(
                    f"{field} asks for {tokens * each} values for the tokens of {what} ({each} for each token); at most "
                    f"{most} are given: ask for fewer alternatives or answers, or send shorter prompts.",
                    param=field,
                )
    if sampling.logprobs is not None and body.collected:
        values = len(prompts) * body.answers * sampling.max_tokens * (1 + sampling.logprobs)
        if values > limits.LOGPROBS_VALUES_MAX:
            raise InvalidRequest(
                f"logprobs asks for up to {values} values (answers times max_tokens times alternatives and one); at most "
                f"{limits.LOGPROBS_VALUES_MAX} are given in one answer: set a smaller max_tokens, or stream.",
                param="logprobs",
            )


def make_view(
    body: GenerationBody,
    prompts: Sequence[tuple[int, ...]],
    texts: Sequence[str],
    tokenizer: Tokenizer,
    loaded: Loaded,
) -> View:
    shows_scores = body.alternatives is not None or body.prompt_alternatives is not None
    own_ends = () if body.ignore_eos else loaded.eos_token_ids  # the model's own end is no stop reason
    options = body.stream_options
    return View(
        logprobs=body.alternatives is not None,
        namer=Namer(tokenizer.token, bool(body.return_tokens_as_token_ids)) if shows_scores else None,
        token_ids=bool(body.return_token_ids),
        prompt_logprobs=body.prompt_logprobs is not None,
        echo=body.echoes,
        prompt_only=body.echoes and body.most_tokens == 0,
        prompts=tuple(prompts),
        prompt_texts=tuple(texts),
        answers=body.answers,
        include_usage=options is not None and bool(options.include_usage),
        continuous_usage=options is not None and bool(options.continuous_usage_stats),
        stop_tokens=frozenset(body.stop_token_ids or ()).difference(own_ends),
        repeated=body.repeated,
        include_stop=bool(body.include_stop_str_in_output),
    )
