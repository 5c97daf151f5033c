"""One endpoint as a whole: the snapshot, the plan that follows from it, and what its status says.

| module | what it knows |
|---|---|
| snapshot | all that a decision is made from |
| reported | the part of a status that can be true |
| plan, steps | the ordered writes |
| status, conditions | what people and tools read |
| causes, restarts | why pods are not ready |
| ownership, disputes | whose a child is, and who changes it back |
| audit | who changed the spec, field by field |
| allowed | hosts that a user may name |
| served | which endpoint a bare model name means |
| series | Events that repeat themselves |
"""
