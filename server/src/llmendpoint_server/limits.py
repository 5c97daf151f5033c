"""The bounds of a request's fields. The API answers a value outside of them with a 400 that names the field, and the engine
checks again. Pure: `core/`, `api/` and the engine import it. These numbers are written nowhere else.

Ranges are OpenAI's where OpenAI has the field.
"""

from __future__ import annotations

TEMPERATURE_MIN, TEMPERATURE_MAX = 0.0, 2.0
"""Both included; 0 is greedy."""
TOP_P_MIN, TOP_P_MAX = 0.0, 1.0
"""Greater than the first, at most the second."""
TOP_K_OFF = (-1, 0)
"""In a body both mean: no limit. Inside the server it is 0."""
TOP_K_MAX = 2**31 - 1
"""Larger than any vocabulary. A value above the model's vocabulary has no effect."""
SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
"""Both included: an int64."""
MAX_TOKENS_MIN, MAX_TOKENS_MAX = 1, 2**31 - 1
"""Both included; the model's length is the real bound."""
STOP_STRINGS_MAX = 4
STOP_STRING_CHARACTERS_MAX = 256
"""Of one stop string, which has at least one character."""
STOP_TOKEN_IDS_MAX = 128
TOKEN_ID_MAX = 2**31 - 1
"""Of an id in a prompt or in stop_token_ids, before the model's vocabulary is looked at."""
CACHE_SALT_CHARACTERS_MAX = 256
REQUEST_ID_CHARACTERS_MAX = 128
"""Ids are the server's own."""
