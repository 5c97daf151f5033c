"""Finds out what the caches do not hold: asks gateways, engines and hubs, and remembers. Only the leader asks.

It decides nothing: `core/` decides, with the same subjects under the same names. An answer that is missing, malformed or
late is left out; nothing that a pod answers may end a task here or hold up another endpoint.

`observers` has one of each subject: `update` starts what there is to find out about an endpoint, `read` says what is known.

| module | what every subject uses |
|---|---|
| gateways | which gateways there are, and the assignment that each follows |
| targets | which pods of an endpoint can be asked |
| reports | load and demand as gateways and engines write them |
| latencies | how long callers of an engine wait, from its histograms |
| inquiries | questions to a hub, answered in the background |
| slots | who may ask now |
| wire, bounded | HTTP, short and bounded |
"""
