"""A contender's process: prompts in, counts and times out, one JSON object a line (peers/wire.py)."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from llmendpoint_server.engine.machine import SPIN_COUNT
from tests.bench.engine.environments import SCRIPTS, CannotRun, last_line
from tests.bench.results import RESULTS

LOAD_LIMIT_S, ROUND_LIMIT_S = 600, 300


class Process:
    """Loaded when made. A contender that dies or answers nothing in time raises CannotRun. `title`: what it calls itself."""

    def __init__(self, name: str, interpreter: Path, script: str, options: dict[str, Any]) -> None:
        self._log = RESULTS / "logs" / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(options["threads"])
        settings = {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "GOMP_SPINCOUNT": SPIN_COUNT,  # as the engine process sets it for itself
            "HF_HUB_OFFLINE": "1",
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(interpreter), str(SCRIPTS / script), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **settings},
            )
        self.title: str = self._receive(LOAD_LIMIT_S)["ready"]

    def ask(self, prompts: list[list[int]], **sampling: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompts": prompts, **sampling}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CannotRun(f"ended: {last_line(self._log.read_text(errors='replace'))}") from error
        return self._receive(ROUND_LIMIT_S)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _receive(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(limit_s, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        in_time = timer.is_alive()
        timer.cancel()
        message: dict[str, Any] = json.loads(line) if line else {}
        if message and "error" not in message:
            return message
        self.close()
        if message:
            raise CannotRun(str(message["error"]))
        if not in_time:
            raise CannotRun(f"no answer within {limit_s:.0f} s")
        raise CannotRun(f"ended: {last_line(self._log.read_text(errors='replace'))}")
