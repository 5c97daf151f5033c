"""The node's address, routes and packet filter: nothing comes in from outside, nothing goes out.

Chains that start with one of `_OURS` are taken to be the cluster's; `require_none` refuses a machine that has such
chains already, so that they can all be removed at the end.
"""

import ipaddress
import json
from collections.abc import Iterator, Sequence

from tests.cluster import progress
from tests.cluster.configuration import NODE_ADDRESS, POD_CIDR, SERVICE_CIDR
from tests.cluster.errors import AlreadyTaken, CommandFailed

LINK = "llmendpoint0"
_OURS = ("KUBE-", "CNI-", "LLMENDPOINT-")
_TABLES = ("mangle", "nat", "filter")
_PROGRAMS = ("iptables", "ip6tables")

_GUARD = f"""*mangle
:LLMENDPOINT-GUARD - [0:0]
-A LLMENDPOINT-GUARD -s {POD_CIDR} -j RETURN
-A LLMENDPOINT-GUARD -i lo -j RETURN
-A LLMENDPOINT-GUARD -d {POD_CIDR} -j DROP
-A LLMENDPOINT-GUARD -d 127.0.0.0/8 -j DROP
-I FORWARD 1 -j LLMENDPOINT-GUARD
-I INPUT 1 -j LLMENDPOINT-GUARD
COMMIT
*filter
:LLMENDPOINT-EGRESS - [0:0]
-A LLMENDPOINT-EGRESS -s {POD_CIDR} ! -d {POD_CIDR} -j REJECT
-I FORWARD 1 -j LLMENDPOINT-EGRESS
COMMIT
"""


def set_up() -> None:
    """Make the link that carries the node's address, and the filter around it.

    A bridge without ports is what every kernel has to hold an address. Service addresses are routed to it and dead
    pod addresses to nowhere, so that neither leaves by the machine's default route.
    """
    progress.run(["ip", "link", "add", LINK, "type", "bridge"])
    progress.run(["ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", LINK])
    progress.run(["ip", "link", "set", LINK, "up"])
    progress.run(["ip", "route", "add", SERVICE_CIDR, "dev", LINK, "src", NODE_ADDRESS])
    progress.run(["ip", "route", "add", "unreachable", POD_CIDR])
    progress.run(["iptables-restore", "--noflush", "--wait"], stdin=_GUARD)


def tear_down() -> None:
    """Remove the link, the routes and every chain that the cluster's components made."""
    _ignore_failure("ip", "route", "del", "unreachable", POD_CIDR)
    _ignore_failure("ip", "link", "del", LINK)
    for program in _PROGRAMS:
        script = "".join(removal(table, _saved(program, table)) for table in _TABLES)
        if script:
            progress.run([f"{program}-restore", "--noflush", "--wait"], stdin=script)


def require_free() -> None:
    """Refuse a machine on which our addresses or chains would meet somebody else's."""
    _require_no_routes()
    for program in _PROGRAMS:
        found = sorted({chain for table in _TABLES for chain in our_chains(_saved(program, table))})
        if found:
            raise AlreadyTaken(
                f"{program} has chains of another Kubernetes or CNI ({', '.join(found[:5])}, …); end that one first"
            )


def our_chains(saved: Sequence[str]) -> list[str]:
    """Names of the cluster's chains in the lines of iptables-save."""
    names = (line[1:].split()[0] for line in saved if line.startswith(":"))
    return [name for name in names if name.startswith(_OURS)]


def removal(table: str, saved: Sequence[str]) -> str:
    """Input for iptables-restore that takes our chains and the jumps to them out of a table."""
    ours = our_chains(saved)
    if not ours:
        return ""
    jumps = [line for line in saved if line.startswith("-A ") and not line[3:].startswith(_OURS)]
    lines = [f"-D {line[3:]}" for line in jumps if any(f" -j {chain}" in line for chain in ours)]
    lines += [f"-F {chain}" for chain in ours] + [f"-X {chain}" for chain in ours]
    return "\n".join([f"*{table}", *lines, "COMMIT", ""])


def _saved(program: str, table: str) -> list[str]:
    try:
        return progress.run([f"{program}-save", "-t", table]).splitlines()
    except CommandFailed:
        return []  # a kernel without this table (often IPv6's) has no chains in it


def _require_no_routes() -> None:
    ours = [ipaddress.ip_network(cidr) for cidr in (POD_CIDR, SERVICE_CIDR)]
    for network, device in _routes():
        if any(network.overlaps(own) for own in ours):
            raise AlreadyTaken(
                f"the route {network} by {device} overlaps with the cluster's addresses"
                f" ({POD_CIDR} for pods, {SERVICE_CIDR} for services)"
            )


def _routes() -> Iterator[tuple[ipaddress.IPv4Network, str]]:
    for route in json.loads(progress.run(["ip", "-4", "-json", "route", "show"]) or "[]"):
        if route["dst"] != "default":
            yield ipaddress.IPv4Network(route["dst"]), route.get("dev", "nothing")


def _ignore_failure(*argv: str) -> None:
    try:
        progress.run(argv)
    except CommandFailed:
        pass  # it was not there
