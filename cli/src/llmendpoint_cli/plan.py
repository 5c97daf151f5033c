"""`kubectl llm plan`: needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from llmendpoint_fit.core.accelerators import ACCELERATORS, recognise, slice_memory
from llmendpoint_fit.core.devices import Device
from llmendpoint_fit.core.memory import Load
from llmendpoint_fit.core.model import Model
from llmendpoint_fit.core.quantity import parse_bytes

from .core.planning import Asked, Prices, Report, asked_by, make_report
from .core.tree import as_json
from .errors import BadUsage, CliError
from .models import invented, read_model
from .options import Format, Output, print_json

NAMES = ", ".join(accelerator.name for accelerator in ACCELERATORS)

EXAMPLES = f"""Exit codes: 0 it fits; 1 it does not fit; 2 bad usage; 3 no such model; 4 the model cannot be read; 6 no access to the hub.

Accelerators: {NAMES}.

Examples:

\b
  kubectl llm plan ./Qwen3-8B                                         all accelerators that would fit
  kubectl llm plan Qwen/Qwen3-8B --accelerator l4 --max-model-len 8192 --max-num-seqs 16
  kubectl llm plan Qwen/Qwen3-8B --draft-model Qwen/Qwen3-0.6B --accelerator l4
  kubectl llm plan -f chat.yaml --price 0.60 --tokens-per-second 900 --api-price 0.50
  kubectl llm plan -f chat.yaml --model ./Qwen3-8B -o json
  kubectl llm plan --parameters 8B --layers 36 --kv-heads 8 --head-dim 128 --accelerator a10
"""


def option(
    help: str, *names: str, metavar: str, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """An option without a default of its own."""
    return typer.Option(*names, help=help, metavar=metavar, min=minimum, max=maximum, show_default=False)


Text = str | None
Whole = int | None
Number = float | None


class KvCacheDtype(StrEnum):
    """What keys and values are kept in."""

    AUTO = "auto"
    INT8 = "int8"
    FP8 = "fp8"


ModelArgument = Annotated[
    Text,
    typer.Argument(
        metavar="[MODEL]",
        help="A folder, or a model of a hub: organisation/name[@revision].",
        show_default=False,
    ),
]
Filename = Annotated[
    Path | None,
    option(
        "File with LLMEndpoint manifests: plan what each of them asks for.",
        "--filename",
        "-f",
        metavar="FILE",
    ),
]
ModelOption = Annotated[
    Text,
    option("With -f: read the model from here, not from where the file says.", "--model", metavar="MODEL"),
]
DraftOption = Annotated[
    Text,
    option(
        "A model that guesses tokens (the engine's --draft-model).  [default: with -f, the file's]",
        "--draft-model",
        metavar="MODEL",
    ),
]
Accelerators = Annotated[
    Text,
    option("A name of the list of accelerators, or a product's name.  [default: try all]", metavar="NAME"),
]
Memory = Annotated[
    Text, option("Memory of one accelerator that is not in the list, for example 24Gi.", metavar="BYTES")
]
Count = Annotated[Whole, option("Number of accelerators for each replica.", metavar="N", minimum=1)]
MaxModelLen = Annotated[
    Whole, option("Most tokens of one request.  [default: the model's limit]", metavar="TOKENS", minimum=1)
]
MaxNumSeqs = Annotated[Whole, option("Most sequences in one batch.  [default: 256]", metavar="N", minimum=1)]
KvDtype = Annotated[
    KvCacheDtype | None,
    option(
        "Number format of the KV cache: int8 and fp8 take one byte.  [default: that of the model]",
        "--kv-cache-dtype",
        metavar="auto|int8|fp8",
    ),
]
Price = Annotated[
    Number,
    option("Price of one accelerator, in USD per hour.  [default: a list price]", metavar="USD", minimum=0),
]
Throughput = Annotated[
    Number, option("Measured output tokens per second of one replica.", metavar="N", minimum=0.001)
]
ApiPrice = Annotated[
    Number,
    option("Price of an API to compare with, in USD per million tokens.", metavar="USD", minimum=0.000001),
]
Parameters = Annotated[
    Text, option("Instead of MODEL: its number of parameters, for example 8B.", metavar="N")
]
Layers = Annotated[Whole, option("With --parameters: number of layers.", metavar="N", minimum=1)]
KvHeads = Annotated[Whole, option("With --parameters: number of KV heads.", metavar="N", minimum=1)]
HeadDim = Annotated[Whole, option("With --parameters: size of one head.", metavar="N", minimum=1)]
HubEndpoint = Annotated[
    Text, option("Base URL of the hub.  [default: $HF_ENDPOINT, else the public hub]", metavar="URL")
]


def plan(
    model: ModelArgument = None,
    filename: Filename = None,
    model_option: ModelOption = None,
    draft_model: DraftOption = None,
    accelerator: Accelerators = None,
    accelerator_memory: Memory = None,
    count: Count = None,
    max_model_len: MaxModelLen = None,
    max_num_seqs: MaxNumSeqs = None,
    kv_cache_dtype: KvDtype = None,
    price: Price = None,
    tokens_per_second: Throughput = None,
    api_price: ApiPrice = None,
    parameters: Parameters = None,
    layers: Layers = None,
    kv_heads: KvHeads = None,
    head_dim: HeadDim = None,
    hub_endpoint: HubEndpoint = None,
    output: Format = Output.TEXT,
) -> None:
    """Check whether a model fits an accelerator. Also says what would fit and what tokens cost. Needs no cluster."""
    given = invented_of(parameters, layers, kv_heads, head_dim, max_model_len)
    named = model_option or model
    if sum(x is not None for x in (given, named)) > 1 or (
        filename is None and given is None and named is None
    ):
        raise BadUsage(
            "name one model: MODEL, or -f FILE (with --model, if this machine cannot read the file's model), or --parameters"
        )
    device, prices = device_of(accelerator, accelerator_memory), Prices(price, api_price, tokens_per_second)
    reports = []
    for asked, source in _asked(filename, named):
        asked = _overridden(asked, device, count, max_model_len, max_num_seqs, kv_cache_dtype)
        found, guesses = given or read_model(source, hub_endpoint), draft_model or asked.draft
        draft = read_model(guesses, hub_endpoint) if guesses else None
        reports.append(make_report(found, asked, prices, draft))
    _print(reports, output)
    if not all(report.fits for report in reports):
        raise typer.Exit(CliError.exit_code)


def _overridden(
    asked: Asked,
    device: Device | None,
    count: int | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    kv_cache_dtype: KvCacheDtype | None,
) -> Asked:
    """Options take precedence over the manifest."""
    load = replace(
        asked.load,
        max_model_len=max_model_len or asked.load.max_model_len,
        max_num_seqs=max_num_seqs or asked.load.max_num_seqs,
    )
    if kv_cache_dtype is not None:
        load = replace(load, kv_element_bytes=None if kv_cache_dtype is KvCacheDtype.AUTO else 1)
    return replace(asked, load=load, device=device or asked.device, count=count or asked.count)


def device_of(accelerator: str | None, memory: str | None) -> Device | None:
    """The accelerator that the options name; None if they name none. Raises BadUsage."""
    try:
        size = parse_bytes(memory) if memory is not None else slice_memory(accelerator or "")
    except ValueError as error:
        raise BadUsage(f"--accelerator-memory: {error}") from None
    if size is not None:
        return Device(size, accelerator or "accelerator")
    if accelerator is None:
        return None
    known = recognise(accelerator)
    if known is None:
        raise BadUsage(
            f"--accelerator {accelerator} is unknown; known are {NAMES}; for any other give --accelerator-memory"
        )
    return Device(known.memory, known.name)


def invented_of(
    parameters: str | None,
    layers: int | None,
    kv_heads: int | None,
    head_dim: int | None,
    context: int | None,
) -> Model | None:
    """The model that the options describe; None if they describe none. Raises BadUsage."""
    if parameters is None and layers is None and kv_heads is None and head_dim is None:
        return None
    if parameters is None or layers is None or kv_heads is None or head_dim is None:
        raise BadUsage(
            "--parameters, --layers, --kv-heads and --head-dim describe a model together: give all four of them"
        )
    return invented(parameters, layers, kv_heads, head_dim, context)


def _asked(filename: Path | None, named: str | None) -> Iterator[tuple[Asked, str]]:
    """What to plan for, and where the model is."""
    if filename is None:
        yield Asked(named or "", Load()), named or ""
        return
    for manifest in read_manifests(filename):
        try:
            asked = asked_by(manifest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadUsage(f"{filename}: this LLMEndpoint cannot be read: {error}") from None
        yield asked, named or str(((manifest.get("spec") or {}).get("model") or {}).get("source") or "")


def read_manifests(path: Path) -> list[dict[str, Any]]:
    """The LLMEndpoints of a file. Raises BadUsage."""
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise BadUsage(f"{path} cannot be read: {error}") from None
    found = [d for d in documents if isinstance(d, dict) and d.get("kind") == "LLMEndpoint"]
    if not found:
        raise BadUsage(f"{path} holds no LLMEndpoint")
    return found


def _print(reports: list[Report], output: Output) -> None:
    if output is Output.JSON:
        print_json(as_json(reports))
        return
    from .render import make_console  # rich: not needed for JSON
    from .render_plan import report_view

    for report in reports:
        make_console().print(report_view(report))
