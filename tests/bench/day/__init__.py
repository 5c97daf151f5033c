"""A day of bursty requests in virtual time: what a scaling policy costs in replica-hours and in missed deadlines.

| module | what it knows |
|---|---|
| trace | when requests arrive, and how long their answers are |
| fleet | replicas that load, answer and drain, and the queue before them; timed as the simulator is |
| policies | ours, KEDA's with a HorizontalPodAutoscaler, and a fixed count |
| \\_\\_main\\_\\_ | the same day under each, and the table |
"""
