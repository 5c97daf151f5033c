"""The pods of one revision: the revision's identity, and the objects that it consists of. Pure.

| module | what it knows |
|---|---|
| revision, defaults | what a revision consists of, its hash, and its record |
| agreement | whether a spec still asks for a recorded revision |
| arguments | the engine's command line |
| manifests | owner, metadata, security and environment |
| builders | Services, ServiceAccount, ControllerRevision |
| deployment | the Deployment |
| grace | how long a stopping replica may take to finish its requests |
| policies, neighbours | PodDisruptionBudget and NetworkPolicy |
| state | facts from a pod's status: ready, alive, without a node |
| drift | whether a live object differs from the wanted one |
"""
