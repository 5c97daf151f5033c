"""Rollouts: which revision is asked for, who gets requests, and how many pods each has. Pure: facts in, decision out.

| module | what it knows |
|---|---|
| machine | the states and the table of moves |
| situation | one moment, and the facts that are read from it |
| occurrences | when each event of the table has happened |
| places | where green's pods run: beside blue's, or in place of them |
| waiting | how long is still to be waited, and when to look again |
| moves | what a move changes |
| replicas | pods of each revision: beside each other, in place, or one after the other |
| traffic | shares of new requests, and the epoch that gateways acknowledge |
| target | the revision that the spec asks for; restarts and undos |
| requests | answers to `promote`, `abort`, `undo` and `restart` |
| wanted | what is to be found out about an endpoint now |
| evidence | what was seen outside the API server |
| measurements, histograms | counters made into figures of one window |
| analysis | the verdict on figures: against limits, and against the old revision |
| observation | what watching live figures has come to |
| verification | whether an answer to a prompt is what was expected |
| prospects | whether a node or a volume will come for a pod |
| records | what of this stands in the status |
| decision | all of it together, for one moment |
"""
