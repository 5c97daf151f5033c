"""Rollouts: the target revision, the traffic shares, and the pods of each revision. Pure functions of facts.

| module | what it knows |
|---|---|
| machine | the states and the table of moves |
| situation | one moment of a rollout, and the facts derived from it |
| occurrences | when each event of the table has happened |
| places | where green's pods run: beside blue's, or in their places |
| waiting | remaining times, and when to reconcile again |
| moves | what a move changes |
| replicas | the pod count of each revision |
| traffic | shares of new requests, and the epoch that gateways acknowledge |
| target | the revision that the spec asks for; restarts and undos |
| requests | answers to `promote`, `abort`, `undo` and `restart` |
| wanted | what the observers need to find out about an endpoint now |
| evidence | what was observed outside the API server |
| measurements, histograms | figures of one window, from counters |
| sampling | how often the counters are read |
| cells, tails | how failures clump; how many requests were slower than a bound |
| limits | what the spec allows, and how sure a verdict has to be |
| limit_evidence | evidence against each limit, and for it (the tests are in llmendpoint_verdicts) |
| analysis | the verdict that follows from the evidence |
| expectation | when a verdict is to be expected, and whether that is too late |
| account, written | what the status says of an observation; figures as they stand there |
| observation | the result of watching live figures so far |
| verification | whether the answers to a prompt are as expected |
| likeness | whether two revisions' answers differ by more than chance |
| prospects | whether a pod will get a node and its volume |
| records | the rollout's part of the status |
| decision | the whole decision for one moment |
"""
