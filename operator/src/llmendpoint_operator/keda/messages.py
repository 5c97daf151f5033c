"""The messages of KEDA's external-scaler contract (docs/contribute/contracts.md), built from a table without
generated code.

Fields that the contract has deprecated are left out; proto3 ignores unknown fields.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

_TEXT, _BOOL, _DOUBLE, _MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_BOOL,
    FieldDescriptorProto.TYPE_DOUBLE,
    FieldDescriptorProto.TYPE_MESSAGE,
)
_FIELDS: dict[str, tuple[tuple[str, int, int | str], ...]] = {
    "ScaledObjectRef": (("name", 1, _TEXT), ("namespace", 2, _TEXT)),
    "IsActiveResponse": (("result", 1, _BOOL),),
    "MetricSpec": (("metricName", 1, _TEXT), ("targetSizeFloat", 3, _DOUBLE)),
    "GetMetricSpecResponse": (("metricSpecs", 1, "MetricSpec*"),),
    "GetMetricsRequest": (("scaledObjectRef", 1, "ScaledObjectRef"), ("metricName", 2, _TEXT)),
    "MetricValue": (("metricName", 1, _TEXT), ("metricValueFloat", 3, _DOUBLE)),
    "GetMetricsResponse": (("metricValues", 1, "MetricValue*"),),
}
"""Name, number and type of each field. A message's type is its name, with `*` if the field repeats."""


def _message(name: str) -> Any:
    made = DescriptorProto(name=name)
    for field, number, kind in _FIELDS[name]:
        repeated = isinstance(kind, str) and kind.endswith("*")
        made.field.add(
            name=field,
            number=number,
            type=_MESSAGE if isinstance(kind, str) else kind,
            type_name=f".{PACKAGE}.{kind.rstrip('*')}" if isinstance(kind, str) else None,
            label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
        )
    return made


_pool = DescriptorPool()
_pool.Add(
    FileDescriptorProto(
        name="externalscaler.proto",
        package=PACKAGE,
        syntax="proto3",
        message_type=[_message(name) for name in _FIELDS],
    )
)


def _class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
MetricSpec = _class("MetricSpec")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
GetMetricsRequest = _class("GetMetricsRequest")
MetricValue = _class("MetricValue")
GetMetricsResponse = _class("GetMetricsResponse")
