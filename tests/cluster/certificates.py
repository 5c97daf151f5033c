"""The cluster's own certificate authority, and one identity for each component.

Each client certificate carries the name that Kubernetes' own roles are bound to, so that `Node,RBAC` holds for the
components too: none of them is an administrator.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=10)

FRONT_PROXY = "front-proxy-client"
"""As whom the API server hands requests on to the servers of APIServices."""


@dataclass(frozen=True)
class Identity:
    """`user` in `group` as RBAC sees it; `names` are the host names and addresses that a server answers on."""

    file: str
    user: str
    group: str | None = None
    names: tuple[str, ...] = ()


def component_identities(node: str, addresses: Sequence[str]) -> tuple[Identity, ...]:
    """Who takes part in a cluster whose API server and kubelet are reached at `addresses`."""
    served = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", *addresses)
    return (
        Identity("apiserver", "kube-apiserver", names=served),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        Identity("front-proxy", FRONT_PROXY),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("kube-proxy", "system:kube-proxy"),
        Identity("coredns", "system:coredns"),
        Identity("kubelet", f"system:node:{node}", "system:nodes"),
        Identity("kubelet-serving", f"system:node:{node}", "system:nodes", (node, *addresses)),
    )


def write_pki(folder: Path, identities: Sequence[Identity]) -> None:
    """Write ca.crt, NAME.crt and NAME.key for each identity, and sa.key and sa.pub for service accounts."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority_certificate(authority_key)
    _write_certificate(folder / "ca.crt", authority)
    for identity in identities:
        key = ec.generate_private_key(ec.SECP256R1())
        _write_key(folder / f"{identity.file}.key", key)
        _write_certificate(
            folder / f"{identity.file}.crt", _certificate(identity, key, authority, authority_key)
        )
    signing = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "sa.key", signing)
    public = signing.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "sa.pub").write_bytes(public)


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "llmendpoint-test-cluster")])
    usage = _key_usage(signs_certificates=True)
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _certificate(
    identity: Identity,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.user)]
    if identity.group:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.group))
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if identity.names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(x509.Name(attributes), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if identity.names:
        names = x509.SubjectAlternativeName([_general_name(name) for name in identity.names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
