"""The caller of a request: the address that it came from, because a sender cannot choose that.

Nothing checks tokens yet, so a sender can invent any number of them. It cannot invent an address. Of IPv6 the first 64
bits count, because one machine has all the addresses below them. A caller is a number, so that the memory for one has a
fixed size. The number differs between processes.
"""

from ipaddress import AddressValueError, IPv6Address

MASK = (1 << 64) - 1
LONGEST = 64
"""The longest address in characters, with brackets, zone and port."""


def caller_of(forwarded_for: bytes, trusted_hops: int = 0) -> int:
    """`forwarded_for`: x-forwarded-for. Envoy wrote its last entry: the address of its own peer. `trusted_hops`: how
    many proxies stand before the gateway. Each of them adds one entry, so the caller's is that far from the end."""
    entries = forwarded_for.rsplit(b",", trusted_hops + 1)
    entry = entries[-1 - trusted_hops] if len(entries) > trusted_hops else entries[0]
    if len(entry) > LONGEST:
        return 0
    return hash(_network(entry.strip())) & MASK


def _network(address: bytes) -> bytes:
    if address.count(b":") < 2:
        return address.partition(b":")[0]  # IPv4, perhaps with a port
    text = address.partition(b"]")[0].lstrip(b"[").partition(b"%")[0]
    try:
        parsed = IPv6Address(text.decode("latin-1"))
    except AddressValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped).encode()
    return parsed.packed[:8]
