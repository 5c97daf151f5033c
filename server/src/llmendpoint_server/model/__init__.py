"""`llmendpoint-model`: brings a model's files from where they are into a folder. Decisions are in core/model_plan.py."""
