"""LoRA adapters of an endpoint, loaded into running pods. Pure.

| module | what it knows |
|---|---|
| mounts | where an engine finds an adapter, and which claims a pod needs for that |
| moves | what a pod is to load and unload next, and when a failure is tried again |
| awaited | whether a rollout waits for adapters |
| reported | what the status says of adapters |
"""
