"""Who a request is from, as far as its sender cannot choose it: the address that it came from.

Nothing checks tokens yet, so a sender can make up as many as it likes; an address it cannot. Of IPv6 the first 64 bits
count, as one machine has all the addresses below them. A caller is a number, so that what is kept of one has a fixed
size; the number is another in each process.
"""

from ipaddress import AddressValueError, IPv6Address

MASK = (1 << 64) - 1
LONGEST = 64
"""Characters of an address, with brackets, zone and port."""


def caller_of(forwarded_for: bytes, trusted_hops: int = 0) -> int:
    """`forwarded_for`: x-forwarded-for, whose last entry Envoy wrote: the address of its own peer. `trusted_hops`: how many
    proxies stand before the gateway; each wrote the entry before its own, so the caller's is that far from the end."""
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
