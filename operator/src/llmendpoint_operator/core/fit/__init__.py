"""Whether a revision's model fits its accelerators: the condition CapacityFits. Pure; the formulas are llmendpoint_fit's.

| module | what it knows |
|---|---|
| job | the one-shot Job that reads a model on a claim |
| outlook | the condition, and what stands in the status |

What is known of the model is in findings.py beside this package.
"""

from .job import INSPECTS_LABEL, inspection_name, job_steps
from .outlook import Outlook, look

__all__ = [
    "INSPECTS_LABEL",
    "Outlook",
    "inspection_name",
    "job_steps",
    "look",
]
