"""How many replicas an endpoint has. Pure: facts, the memory and the time go in; a decision and the new
memory come out.

| module | what it knows |
|---|---|
| demand | the gateways' reports combined; what is not reported stays unknown |
| signals | the number of replicas that each signal recommends |
| smoothing | stabilization windows and rates of change, as in a HorizontalPodAutoscaler |
| cron | cron expressions with five fields |
| bounds | the present minimum and maximum, schedules included |
| crowd | requests and replicas when the first token was last late |
| scene | the inputs of one decision, and the memory between decisions |
| decision | the whole decision: poll, wake, cool down, fall back |
| outcome | the count, why it changed, and the state of the scaler |
| records | the scaler's part of the status, from which the next leader continues |
| scaledown | which replicas are removed, and in what order |
| providers | the objects of an outside scaler: KEDA, or a HorizontalPodAutoscaler |
| opinion | what the operator reports to an outside scaler |
| handover | from the builtin scaler to an outside one |
| circuit | the endpoint's breaker, as the gateways report it |
"""
