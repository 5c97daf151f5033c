"""What `kubectl llm plan` answers: whether a model fits, what would fit, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmendpoint_fit.core.accelerators import ACCELERATORS, Accelerator
from llmendpoint_fit.core.cost import breakeven, decode_limit, per_thousand
from llmendpoint_fit.core.devices import Device, parse_wanted, said
from llmendpoint_fit.core.engines import draft_of, parse_load, reads
from llmendpoint_fit.core.memory import Load, kv_token_bytes
from llmendpoint_fit.core.model import Model
from llmendpoint_fit.core.text import QUANTIZED, change_text, fit_text
from llmendpoint_fit.core.verdict import Fit, Question, divisible, evaluate, loads, what_would_fit

COUNTS = (1, 2, 4, 8)
"""Numbers of accelerators for one replica that are tried if none is given."""

NONE_HOLDS = "no known accelerator holds it, not even eight of one kind"


@dataclass(frozen=True, slots=True)
class Asked:
    """What to plan for. `device`: None if none is named. `kind`: only accelerators of this kind are considered.
    `reads`: the quantizations that the engine loads; None: all. `draft`: the source of the model that guesses tokens; None: there is
    none."""

    name: str
    load: Load
    device: Device | None = None
    kind: str | None = None
    count: int | None = None
    reads: frozenset[str] | None = None
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per hour of one accelerator, USD per million tokens of an API, and measured tokens per second of a replica."""

    hourly: float | None = None
    api: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class CostView:
    """`measured`: the throughput was given. Otherwise it is decode's limit with `sequences` of `mean_context` tokens,
    which no engine reaches, and the price is a lower bound. `per_thousand`: USD for 1,000 output tokens. `breakeven`:
    tokens per second above which the replica is cheaper than the API."""

    hourly: float
    tokens_per_second: float | None
    measured: bool
    sequences: int
    mean_context: int
    per_thousand: float | None
    breakeven: float | None


@dataclass(frozen=True, slots=True)
class Option:
    """A model on some accelerators. Bytes are those of one accelerator."""

    accelerator: str
    count: int
    outcome: str
    fits: bool
    message: str
    memory: int
    weights: int
    overhead: int
    cache: int
    context: int
    longest_context: int
    sequences: int
    draft: int = 0
    would_fit: tuple[str, ...] = ()
    cost: CostView | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The answer: one option if an accelerator is named, else those that serve, the cheapest first. `fits`: at least
    one option serves. `problem`: why there is no option."""

    model: str
    architecture: str
    parameters: int
    quantization: str | None
    weights: int
    kv_bytes_per_token: int
    fits: bool
    options: tuple[Option, ...]
    problem: str = ""


def asked_by(manifest: Mapping[str, Any]) -> Asked:
    """What an LLMEndpoint's manifest asks for. Raises ValueError."""
    spec = manifest.get("spec") or {}
    wanted = parse_wanted(spec)
    return Asked(
        name=str(manifest.get("metadata", {}).get("name", "")),
        load=parse_load(spec),
        device=said(wanted) if wanted else None,
        kind=wanted.kind if wanted else None,
        count=wanted.count if wanted else None,
        reads=reads(spec),
        draft=draft_of(spec),
    )


def make_report(model: Model, asked: Asked, prices: Prices, draft: Model | None = None) -> Report:
    """Answer for one model, with the one that guesses tokens for it."""
    shape = model.shape
    if asked.device is not None:
        options: tuple[Option, ...] = (_option(model, asked, asked.device, asked.count or 1, prices, draft),)
    else:
        options = tuple(sorted(_choices(model, asked, prices, draft), key=_price))
    return Report(
        model=asked.name,
        architecture=shape.architecture,
        parameters=shape.parameters,
        quantization=shape.quantization,
        weights=model.stored,
        kv_bytes_per_token=kv_token_bytes(model, asked.load),
        fits=any(option.fits for option in options),
        options=options,
        problem="" if options else NONE_HOLDS if loads(model, asked.reads) else QUANTIZED,
    )


def _choices(model: Model, asked: Asked, prices: Prices, draft: Model | None) -> Iterator[Option]:
    """For each kind of accelerator, the smallest number that serves."""
    for accelerator in ACCELERATORS:
        if asked.kind is not None and accelerator.kind != asked.kind:
            continue
        device = Device(accelerator.memory, accelerator.name)
        tried = (_option(model, asked, device, count, prices, draft) for count in _counts(model, asked))
        found = next((option for option in tried if option.fits), None)
        if found is not None:
            yield found


def _counts(model: Model, asked: Asked) -> Iterable[int]:
    if asked.count is not None:
        return (asked.count,)
    return (n for n in COUNTS if model.shape.heads % n == 0 and divisible(model, asked.load, n))


def _option(
    model: Model, asked: Asked, device: Device, count: int, prices: Prices, draft: Model | None
) -> Option:
    question = Question(model, asked.load, device.memory, count, reads=asked.reads, draft=draft)
    fit, accelerator = evaluate(question), device.accelerator
    kind = asked.kind or (accelerator.kind if accelerator else None)
    return Option(
        accelerator=device.title,
        count=count,
        outcome=fit.outcome.value,
        fits=fit.outcome.serves,
        message=fit_text(fit, asked.load.sequences),
        memory=fit.memory,
        weights=fit.weights,
        overhead=fit.overhead,
        cache=fit.cache,
        context=fit.context,
        longest_context=fit.longest,
        sequences=fit.sequences,
        draft=fit.draft,
        would_fit=tuple(change_text(change) for change in what_would_fit(question, kind)),
        cost=_cost(question, fit, accelerator, prices) if fit.outcome.serves else None,
    )


def _cost(question: Question, fit: Fit, accelerator: Accelerator | None, prices: Prices) -> CostView | None:
    each = prices.hourly if prices.hourly is not None else accelerator.hourly if accelerator else None
    if each is None:
        return None
    hourly, speed = each * question.accelerators, prices.tokens_per_second
    batch, context = _busy(question, fit)
    if speed is None and accelerator is not None:
        speed = decode_limit(
            question.model, question.load, accelerator, question.accelerators, batch, context
        )
    return CostView(
        hourly=hourly,
        tokens_per_second=speed,
        measured=prices.tokens_per_second is not None,
        sequences=batch,
        mean_context=context,
        per_thousand=per_thousand(hourly, speed) if speed else None,
        breakeven=breakeven(hourly, prices.api) if prices.api else None,
    )


def _busy(question: Question, fit: Fit) -> tuple[int, int]:
    """The sequences of a full batch, and the tokens of each if all of them together fill the cache."""
    batch = question.load.sequences
    one = kv_token_bytes(question.model, question.load, question.accelerators)
    return batch, max(1, min(fit.context, fit.cache // one // batch))


def _price(option: Option) -> tuple[float, str]:
    """The key to sort by. Options without a price come last."""
    return (option.cost.hourly if option.cost else float("inf"), option.accelerator)
