"""`/v1/load_lora_adapter` and `/v1/unload_lora_adapter`: the wire format is vLLM's. They are for who operates the server: the
gateway passes neither."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server import limits
from llmendpoint_server.adapter_flags import adapter_fault
from llmendpoint_server.api.adapters import Adapter, Adapters
from llmendpoint_server.api.decoding import BodyDecoder
from llmendpoint_server.api.fields import Body
from llmendpoint_server.api.off_loop import OffLoop, Turn
from llmendpoint_server.api.responses import json_response
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.tasks import ready
from llmendpoint_server.errors import InvalidRequest

_NAME = f"a string of 1 to {limits.ADAPTER_NAME_MAX} letters, digits, '.', '_' and '-'"
_FORMS = {
    "lora_name": _NAME,
    "lora_path": f"a string of 1 to {limits.ADAPTER_SOURCE_MAX} characters: hf://, s3://, pvc://, file://, or a folder",
    "lora_int_id": "a whole number; it is not used",
    "load_inplace": "true or false; an adapter of this name is replaced in any case",
}
_VALUES_MAX = 64


class LoadAdapterBody(Body):
    """The last two are vLLM's, and change nothing."""

    lora_name: str
    lora_path: str
    lora_int_id: int | None = None
    load_inplace: bool | None = None


class UnloadAdapterBody(Body):
    lora_name: str
    lora_int_id: int | None = None


class AdapterRoutes:
    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service, self._off_loop = service, off_loop
        self._load_body = BodyDecoder(LoadAdapterBody, _FORMS)
        self._unload_body = BodyDecoder(UnloadAdapterBody, _FORMS)

    async def load(self, request: Request) -> Response:
        adapters = self._adapters()
        body = await self._read(request, self._load_body)
        if fault := adapter_fault(body.lora_name, adapters.served):
            raise InvalidRequest(f"lora_name {fault}.", param="lora_name")
        if not 0 < len(body.lora_path) <= limits.ADAPTER_SOURCE_MAX or "\0" in body.lora_path:
            raise InvalidRequest(f"lora_path must be {_FORMS['lora_path']}.", param="lora_path")
        return json_response(self._shown(await adapters.load(body.lora_name, body.lora_path)))

    async def unload(self, request: Request) -> Response:
        adapters = self._adapters()
        body = await self._read(request, self._unload_body)
        if not 0 < len(body.lora_name) <= limits.ADAPTER_NAME_MAX:
            raise InvalidRequest(f"lora_name must be {_NAME}.", param="lora_name")
        return json_response(self._shown(await adapters.unload(body.lora_name)))

    def _adapters(self) -> Adapters:
        ready(self._service)
        adapters = self._service.adapters
        if adapters is None:
            raise InvalidRequest(
                "This server was started without --enable-lora, and loads no adapters.", param="lora_name"
            )
        return adapters

    async def _read(self, request: Request, decoder: BodyDecoder[Any]) -> Any:
        def decoded(data: bytearray, _: float, __: Turn) -> Any:
            return decoder.decode(data)

        return await self._off_loop.read(request, 1, _VALUES_MAX, decoded)

    def _shown(self, adapter: Adapter) -> dict[str, Any]:
        return shown(adapter, self._service)


def shown(adapter: Adapter, service: Service) -> dict[str, Any]:
    """As `/v1/models` lists it."""
    loaded = service.engine.loaded
    return {
        "id": adapter.name, "object": "model", "created": adapter.created, "owned_by": "llmendpoint",
        "max_model_len": loaded.max_model_len if loaded else None,
        "root": adapter.source, "parent": service.served_names[0],
    }  # fmt: skip
