"""One endpoint as a whole: its snapshot, the plan made from it, and its status.

| module | what it knows |
|---|---|
| snapshot | everything that a decision is made from |
| reported | the valid part of a stored status |
| plan, steps | the ordered writes |
| status, conditions | what people and tools read |
| causes, restarts | why pods are not ready |
| ownership, disputes | who owns an object with a child's name, and who changes a child back |
| audit | who changed the spec, field by field |
| allowed | hosts that a user may name |
| served | which endpoint a bare model name means |
| series | repeated Events |
"""
