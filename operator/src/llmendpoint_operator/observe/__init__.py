"""Finds out what the caches do not hold: asks gateways, engines and hubs, and stores the answers in memory.
Only the leader asks.

No decision is made here: `core/` decides, in modules with the same names. A missing, malformed or late answer
is left out. No answer of a pod may end a task here or delay another endpoint.

`observers` has one object per subject: `update` starts the questions about an endpoint, `read` returns what
is known.

| module | what every subject uses |
|---|---|
| gateways | the gateways, and the assignment that each follows |
| targets | the pods of an endpoint that can be asked |
| reports | load and demand, as gateways and engines write them |
| latencies | latencies from an engine's histograms |
| inquiries | questions to a hub, answered in the background |
| slots | bounds on the number of concurrent questions |
| wire, bounded | HTTP with time-outs and size limits |
"""
