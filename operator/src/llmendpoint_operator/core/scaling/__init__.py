"""How many replicas an endpoint has. Pure: facts, memory and the moment in, a decision and the next memory out.

| module | what it knows |
|---|---|
| demand | what the gateways tell, put together; what is missing stays unknown |
| signals | the number that each signal recommends |
| smoothing | stabilization windows and rates of change, as in a HorizontalPodAutoscaler |
| cron | five fields of cron |
| bounds | the least and the most at a moment, schedules included |
| crowd | requests and replicas when the first token was late last |
| scene | all that one decision is made from, and the memory between two |
| decision | all of it together: poll, wake, cool down, fall back |
| outcome | the count, why it changed, and how the scaler fares |
| records | what of it stands in the status, and is read from there by the next leader |
| scaledown | which replica goes, and in what order |
| providers | the objects of a scaler outside: KEDA, or a HorizontalPodAutoscaler |
| opinion | what such a scaler is told |
| handover | from the builtin scaler to one outside |
| circuit | the breaker, as the gateways tell it |
"""
