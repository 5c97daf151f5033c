"""Run the operator as a process against a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster import Cluster
from tests.ports import free_port


class OperatorProcess:
    """One `llmendpoint-operator`. As context manager it starts, is ready, and gets SIGTERM at the end."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        handle, name = tempfile.mkstemp(prefix="operator-", suffix=".log")
        os.close(handle)
        self.log = Path(name)

    def start(self, expected: str = "ready") -> OperatorProcess:
        """Start it and wait until /readyz says so: `ready` leads with its caches filled, `standby` waits."""
        command = [
            sys.executable, "-m", "llmendpoint_operator", "--kubeconfig", str(self._cluster.kubeconfig),
            "--http-port", str(self.port), "--lease-seconds", "3", *self._arguments,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._cluster.wait_for(
            f"the operator to be {expected}", lambda: self.page("/readyz") == {"status": expected}, 60
        )
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def send(self, number: signal.Signals) -> None:
        """A signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(60)

    def __enter__(self) -> OperatorProcess:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
        print(f"--- {self.log}\n{self.log.read_text()[-5000:]}")
        self.log.unlink()

    @property
    def pid(self) -> int:
        """Of the process, which must be running."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended:\n{self.log.read_text()[-3000:]}"
        return self._process.pid

    def page(self, path: str) -> Any:
        """A page of its HTTP port: JSON where it is, text otherwise; None while it does not answer."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended:\n{self.log.read_text()[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        except OSError:
            return None
        return text if path == "/metrics" else json.loads(text)

    def writes(self) -> float:
        """Writes so far, by its own count."""
        return sum(
            float(v)
            for v in re.findall(
                r"^llmendpoint_operator_writes_total\{.*\} (\S+)$", self.page("/metrics"), re.M
            )
        )

    def reconciles(self) -> float:
        """Reconciles so far."""
        return sum(
            float(v)
            for v in re.findall(
                r"^llmendpoint_operator_reconciles_total\{.*\} (\S+)$", self.page("/metrics"), re.M
            )
        )

    def settle(self, limit_s: int = 30) -> None:
        """Wait until it has done nothing for a second."""
        seen = -1.0
        for _ in range(limit_s):
            now = self.reconciles()
            if now == seen:
                return
            seen = now
            time.sleep(1)
        raise AssertionError("the operator goes on reconciling though nothing changes")
