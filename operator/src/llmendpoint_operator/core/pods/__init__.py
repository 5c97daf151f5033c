"""The pods of one revision: what names it, and the objects that it is made of. Pure.

| module | what it knows |
|---|---|
| revision, defaults | what a revision is made of, its hash, and its record |
| agreement | whether a spec still asks for it |
| arguments | the engine's command line |
| manifests | owner, metadata, security and environment |
| builders | Services, ServiceAccount, ControllerRevision |
| deployment | the Deployment |
| grace | how long a replica may take to end its requests |
| policies, neighbours | PodDisruptionBudget and NetworkPolicy, and who may reach the pods |
| state | what a pod says of itself: ready, alive, without a node |
| drift | whether a live object still is as it should be |
"""
