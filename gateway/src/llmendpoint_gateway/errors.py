"""Every error that this package raises.

GatewayError
├── MalformedObject     a watched object lacks what the gateway reads from it
├── BadRequest          a client's request that names no endpoint (400)
├── BadAnswer           a replica answered a question for its load with something else than HTTP
├── WireError           Envoy's connection to the picker broke HTTP/2 or gRPC
├── NoAccess            no usable service account or kubeconfig
├── EnvoyNotFound       no Envoy binary was found
└── EnvoyAway           Envoy's admin socket does not answer
"""


class GatewayError(Exception):
    """The base class of everything that this package raises on purpose."""


class MalformedObject(GatewayError):
    """An object from the API server lacks a field that the gateway needs. Names the object and the field."""


class BadRequest(GatewayError):
    """The request's body names no model; the message is for the client."""


class BadAnswer(GatewayError):
    """Says what of the answer is not HTTP, or above a bound. The reading counts as missed."""


class WireError(GatewayError):
    """The peer does not speak HTTP/2 as Envoy does. The connection is closed, and Envoy opens another."""


class NoAccess(GatewayError):
    """Says what a service account or a kubeconfig lacks."""


class EnvoyAway(GatewayError):
    """Says which socket does not answer, and why."""


class EnvoyNotFound(GatewayError):
    """Says where an Envoy binary was looked for."""
