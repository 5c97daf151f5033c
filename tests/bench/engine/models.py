"""A shape's model on disk, in the form that a contender reads. Each form is made once and kept beside the environments."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from tests.bench.engine.environments import SCRIPTS, CannotRun, folder, last_line, python
from tests.bench.engine.shapes import Shape

SAVED, OPENVINO, OPENVINO_INT8, GGUF = "saved", "openvino", "openvino-int8", "model.gguf"
CONVERT_LIMIT_S = 900

Say = Callable[[str], None]


def model(shape: Shape, form: str, say: Say) -> Path:
    """Where the model lies in this form. Raises CannotRun."""
    place = folder() / "models" / f"{shape.name}-{shape.digest}" / form
    if place.exists():
        return place
    say(f"writing {shape.title} as {form}")
    if form == SAVED:
        with _whole(place) as new:
            _save(shape, new)
        return place
    saved = model(shape, SAVED, say)
    with _whole(place) as new:
        if form == GGUF:
            _convert("llamacpp", "convert_gguf.py", (saved, new), say)
        else:
            weights = ("int8",) if form == OPENVINO_INT8 else ()
            _convert("convert", "convert_openvino.py", (saved, new, *weights), say)
    return place


@contextlib.contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A path that becomes `place` only when all is written."""
    new = place.with_name(f"{place.name}.{os.getpid()}")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield new
        new.rename(place)
    finally:
        if new.is_dir():
            shutil.rmtree(new)
        else:
            new.unlink(missing_ok=True)


def _save(shape: Shape, place: Path) -> None:
    """Random parameters in bf16, and a tokenizer with one word a token, for servers that want one."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    kind = shape.config["model_type"]
    options = {key: value for key, value in shape.config.items() if key != "model_type"}
    config = AutoConfig.for_model(kind, eos_token_id=None, pad_token_id=None, **options)
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        made.model.norm.weight.fill_(shape.final_norm)
    made.to(torch.bfloat16).save_pretrained(place, max_shard_size="5GB")
    words = Tokenizer(WordLevel({f"w{n}": n for n in range(shape.vocab)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(place)


def _convert(environment: str, script: str, arguments: tuple[Path | str, ...], say: Say) -> None:
    command = [str(python(environment, say)), str(SCRIPTS / script), *map(str, arguments)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=CONVERT_LIMIT_S)
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", None) or str(error).encode()
        raise CannotRun(f"no model: {last_line(output.decode(errors='replace'))}") from error
