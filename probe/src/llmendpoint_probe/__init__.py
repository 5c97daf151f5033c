"""`llmendpoint-probe`: a native sidecar that says whether a foreign engine has proven that it answers.

core/readiness.py decides. The rest of the package asks the engine and answers the kubelet. It imports neither kopf nor
the Kubernetes client, because it runs in every pod of such a runtime.
"""
