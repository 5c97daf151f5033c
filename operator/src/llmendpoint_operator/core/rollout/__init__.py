"""Rollouts: which revision is asked for, who gets requests, and how many pods each has. Pure: facts in, decision out.

| module | what it knows |
|---|---|
| machine | the states and the table of moves |
| occurrences | when each event of the table has happened |
| waiting | when to look again for what only time brings |
| moves | what a move changes |
| capacity | pods of each revision: beside each other, in place, or one after the other |
| traffic | shares of new requests, and the epoch that gateways acknowledge |
| target | the revision that the spec asks for; restarts and undos |
| requests | answers to `promote`, `abort`, `undo` and `restart` |
| observation | what watching live figures has come to |
| records | what of this stands in the status |
| decision | all of it together, for one moment |
"""

from .decision import Rollout, decide, freeze
from .situation import pod_count, ready_count

__all__ = ["Rollout", "decide", "freeze", "pod_count", "ready_count"]
