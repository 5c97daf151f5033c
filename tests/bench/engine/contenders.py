"""Who is compared: the environment, the script and the model of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llmendpoint_server.protocol import Configure
from tests.bench.engine import models
from tests.bench.engine.environments import OWN, python
from tests.bench.engine.processes import Process
from tests.bench.engine.shapes import Shape

INT8 = "int8"


@dataclass(frozen=True)
class Contender:
    """`weights`: int8, or empty for the machine's full precision. `form`: what the script is to run, if it
    knows several. `dtype`: empty for that of the run."""

    name: str
    environment: str
    script: str
    model: str = models.SAVED
    weights: str = ""
    form: str = ""
    dtype: str = ""


OURS = Contender("llmendpoint", OWN, "run_ours.py")
OURS_INT8 = Contender("llmendpoint-int8", OWN, "run_ours.py", weights=INT8)
PEERS = (
    Contender("openvino", "openvino", "run_openvino.py", models.OPENVINO),
    Contender("llama.cpp", "llamacpp", "run_llamacpp.py", models.GGUF),
    Contender("vllm", "vllm", "run_vllm.py"),
    Contender("generate", OWN, "run_transformers.py", form="generate"),
    Contender("continuous-batching", OWN, "run_transformers.py", form="continuous batching"),
    Contender("openvino-int8", "openvino", "run_openvino.py", models.OPENVINO_INT8, weights=INT8),
)


def ours(dtype: str) -> tuple[Contender, ...]:
    """This project's own forms, as far as the engine has them. `dtype` may be auto: the engine chooses."""
    quantizes = "quantization" in Configure.__struct_fields__
    forms = (OURS, OURS_INT8) if quantizes else (OURS,)
    return tuple(replace(form, dtype=dtype) for form in forms)


def start(
    contender: Contender, shape: Shape, dtype: str, threads: int, batch: int, say: Callable[[str], None]
) -> Process:
    """The contender's process, loaded. `dtype`: of peers. Raises CannotRun."""
    interpreter = python(contender.environment, say)
    where = models.model(shape, contender.model, say)
    say(f"starting {contender.name}")
    options = {
        "model": str(where),
        "dtype": contender.dtype or dtype,
        "threads": threads,
        "batch": batch,
        "form": contender.form,
        "weights": contender.weights,
    }
    return Process(contender.name, interpreter, contender.script, options)
