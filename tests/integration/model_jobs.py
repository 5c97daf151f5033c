"""Play the kubelet for Jobs that run llmendpoint-model: their pods' commands are run for real, on this machine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.namespace import Namespace

CACHE = "/models/cache"
ADDRESS = "127.0.0.9"
"""Of the pod that downloads: its progress is asked for there."""


class ModelJobs:
    """`volume` is the folder that stands for the claim. Commands run on this machine's loop-back only."""

    def __init__(self, namespace: Namespace, volume: Path) -> None:
        self.namespace = namespace
        self.volume = volume

    def named(self, component: str) -> list[str]:
        """Names of the Jobs that do so."""
        jobs = self.namespace.get("jobs", "-l", f"app.kubernetes.io/component={component}")["items"]
        return sorted(job["metadata"]["name"] for job in jobs)

    def delete_endpoints(self, *names: str) -> None:
        """Until the garbage collector took their revisions, the last users of a model. In a cluster that has just begun
        it hears of our kinds after half a minute."""
        self.namespace.cluster.kubectl("delete", "llmendpoint", *names, "-n", self.namespace.name)
        self.namespace.cluster.wait_for(
            "the revisions to be collected", lambda: not self.namespace.items("controllerrevisions"), 120
        )

    def pod(self, component: str) -> dict[str, Any]:
        """The Job's pod, once there is one that has not ended."""

        def found() -> dict[str, Any] | None:
            pods = self.namespace.get("pods", "-l", f"app.kubernetes.io/component={component}")["items"]
            fresh = [pod for pod in pods if pod["status"].get("phase") == "Pending"]
            return fresh[0] if fresh else None

        pod: dict[str, Any] = self.namespace.cluster.wait_for(f"a pod of {component}", found, 30)
        return pod

    def bind(self, pod: str, node: str) -> None:
        """As the scheduler does. No such node need be there: its pods are collected a minute later."""
        namespace = self.namespace.name
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
        self.namespace.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))

    def start(self, pod: dict[str, Any]) -> subprocess.Popen[str]:
        """Run its command, with the environment and the Secret that the pod would have."""
        [container] = pod["spec"]["containers"]
        args = [argument.replace(CACHE, str(self.volume)) for argument in container["args"]]
        environment = {item["name"]: item.get("value", "") for item in container.get("env", ())}
        for source in container.get("envFrom", ()):
            data = self.namespace.get("secret", source["secretRef"]["name"])["data"]
            environment |= {key: base64.b64decode(value).decode() for key, value in data.items()}
        command = [sys.executable, "-m", "llmendpoint_server.weights", *args]
        pipe = subprocess.PIPE
        running = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=pipe, stderr=pipe, text=True
        )
        self.namespace.write_pod_status(pod["metadata"]["name"], running)
        return process

    def end(self, pod: dict[str, Any], process: subprocess.Popen[str]) -> int:
        """Wait for it and write what the kubelet would."""
        said, logged = process.communicate(timeout=60)
        code, message = process.returncode, said if process.returncode == 0 else logged
        state = {"terminated": {"exitCode": code, "message": message.strip(), "reason": "Completed"}}
        status = {
            "name": "model",
            "image": "i",
            "imageID": "i",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        phase = "Failed" if code else "Succeeded"
        self.namespace.write_pod_status(
            pod["metadata"]["name"], {"phase": phase, "containerStatuses": [status]}
        )
        return code

    def run(self, component: str) -> int:
        """From its pod to its end; the exit code."""
        pod = self.pod(component)
        return self.end(pod, self.start(pod))
