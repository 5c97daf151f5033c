"""The gRPC service that answers KEDA's questions from a Source.

If the load is unknown (no gateway reports, or the readings are stale) the answer is UNAVAILABLE, never 0.
KEDA then keeps the replicas, and applies its fallback after `fallback.failureThreshold` failures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
import structlog

from ..core.names import Key
from ..core.scaling.opinion import Opinion
from . import messages

log = structlog.get_logger()


GRACE_S = 1.0


METRIC = "replicas"
"""The only metric: the number of replicas that the load needs. Its target is 1 per replica."""


class Source(Protocol):
    """Where the scaler's answers come from."""

    def answer(self, key: Key) -> Opinion | None:
        """The opinion on an endpoint; None if it does not exist or KEDA does not scale it."""

    async def changed(self, key: Key) -> None:
        """Wait until something new may be known about the endpoint, or a few seconds have passed."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The folder of a mounted TLS Secret: tls.crt, tls.key, and ca.crt for the clients' certificates."""

    folder: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Key, certificate and CA. Raises OSError."""
        key, certificate, authority = (
            (self.folder / name).read_bytes() for name in ("tls.key", "tls.crt", "ca.crt")
        )
        return key, certificate, authority

    def credentials(self) -> Any:
        """Server credentials, read for each new connection, so that a renewed certificate needs no
        restart."""

        def made() -> Any:
            key, certificate, authority = self.read()
            return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

        def renewed() -> Any:
            try:
                return made()
            except OSError as error:  # while the files are being replaced, the old certificate stays in use
                log.warning("the scaler's certificate cannot be read", error=str(error))
                return None

        return grpc.dynamic_ssl_server_credentials(made(), renewed, require_client_authentication=True)


class ScalerServer:
    """An async context manager that serves until it exits."""

    def __init__(self, source: Source, certificates: Certificates, port: int, host: str = "[::]") -> None:
        self._source = source
        self._certificates = certificates
        self._address = f"{host}:{port}"
        self._server: Any = None
        self.port = port

    async def __aenter__(self) -> ScalerServer:
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = self._server.add_secure_port(self._address, self._certificates.credentials())
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(GRACE_S)

    def _handlers(self) -> Any:
        def one(function: Any, request: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(function, request.FromString, _serialized)

        return grpc.method_handlers_generic_handler(
            messages.SERVICE,
            {
                "IsActive": one(self._is_active, messages.ScaledObjectRef),
                "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                    self._stream_is_active, messages.ScaledObjectRef.FromString, _serialized
                ),
                "GetMetricSpec": one(self._metric_spec, messages.ScaledObjectRef),
                "GetMetrics": one(self._metrics, messages.GetMetricsRequest),
            },
        )

    async def _opinion(self, reference: Any, context: Any) -> Opinion:
        found = self._source.answer((reference.namespace, reference.name))
        if found is None:
            name = f"{reference.namespace}/{reference.name}"
            said = f"there is no LLMEndpoint {name} with autoscaling.provider: keda"
            await context.abort(grpc.StatusCode.NOT_FOUND, said)
            raise AssertionError("abort raises")
        return found

    async def _is_active(self, reference: Any, context: Any) -> Any:
        found = await self._opinion(reference, context)
        if found.active is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _UNKNOWN)
        return messages.IsActiveResponse(result=found.active)

    async def _stream_is_active(self, reference: Any, context: Any) -> AsyncIterator[Any]:
        """The present state, and each change. An unknown state is not sent; KEDA keeps the last one."""
        told: bool | None = None
        while True:
            active = (await self._opinion(reference, context)).active
            if active is not None and active != told:
                told = active
                yield messages.IsActiveResponse(result=active)
            await self._source.changed((reference.namespace, reference.name))

    async def _metric_spec(self, reference: Any, context: Any) -> Any:
        await self._opinion(reference, context)
        spec = messages.MetricSpec(metricName=METRIC, targetSizeFloat=1.0)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: Any, context: Any) -> Any:
        found = await self._opinion(request.scaledObjectRef, context)
        if request.metricName != METRIC:
            said = f"the metric {request.metricName} is not known; there is {METRIC} alone"
            await context.abort(grpc.StatusCode.NOT_FOUND, said)
        if found.replicas is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _UNKNOWN)
        value = messages.MetricValue(metricName=METRIC, metricValueFloat=float(found.replicas or 0))
        return messages.GetMetricsResponse(metricValues=[value])


_UNKNOWN = "no gateway has told its demand lately: nothing is known, which is not the same as nothing to do"


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
