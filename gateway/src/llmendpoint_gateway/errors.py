"""Every error this package raises.

GatewayError
├── MalformedObject     a watched object lacks what the gateway reads from it
├── BadRequest          a client's request that no endpoint can be picked for (400)
├── WireError           Envoy's connection to the picker broke HTTP/2 or gRPC
├── NoAccess            no usable service account or kubeconfig
├── EnvoyNotFound       no Envoy binary where one was looked for
└── EnvoyAway           Envoy's admin socket does not answer
"""


class GatewayError(Exception):
    """The root: catches everything this package raises on purpose."""


class MalformedObject(GatewayError):
    """An object from the API server without a field that the gateway needs; names the object and the field."""


class BadRequest(GatewayError):
    """The request's body cannot name a model; the message is for the client."""


class WireError(GatewayError):
    """A peer that does not speak HTTP/2 as Envoy does; the connection is closed, and Envoy opens another."""


class NoAccess(GatewayError):
    """Says what is missing of a service account or a kubeconfig."""


class EnvoyAway(GatewayError):
    """Says which socket does not answer, and how."""


class EnvoyNotFound(GatewayError):
    """Says where the Envoy binary was looked for."""
