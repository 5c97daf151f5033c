"""Every error this package raises.

GatewayError
├── MalformedObject     a watched object lacks what the gateway reads from it
├── BadRequest          a client's request that no endpoint can be picked for (400)
└── EnvoyNotFound       no Envoy binary where one was looked for
"""


class GatewayError(Exception):
    """The root: catches everything this package raises on purpose."""


class MalformedObject(GatewayError):
    """An object from the API server without a field that the gateway needs; names the object and the field."""


class BadRequest(GatewayError):
    """The request's body cannot name a model; the message is for the client."""


class NoAccess(GatewayError):
    """Says what is missing of a service account or a kubeconfig."""


class EnvoyNotFound(GatewayError):
    """Says where the Envoy binary was looked for."""
