"""What this package raises.

FitError
├── ConfigError     a config.json does not say what the formulas need; names the field
├── WeightsError    a weight file is no safetensors file, or is cut short; names the file
└── ModelMissing    there is no model where one was looked for
"""

from __future__ import annotations


class FitError(Exception):
    """Base of all errors raised here."""


class ConfigError(FitError):
    """`field` of config.json is missing, or is not of a kind that the formulas know."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"config.json: {field}: {message}")
        self.field = field


class WeightsError(FitError):
    """Names the file and what is wrong with it."""


class ModelMissing(FitError):
    """Names the place, and what was expected there."""
