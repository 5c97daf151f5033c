"""`llmendpoint-model`: brings a model's files from their source into a folder. Decisions are in core/model_plan.py."""
