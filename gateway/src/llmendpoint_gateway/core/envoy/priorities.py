"""Of the priorities that callers ask for, an engine gets `low` alone: it gives way to all. `high` would put a request
before those of other callers, and a caller needs no permission to ask for it. Within one caller's requests the gateway's
own queue has followed all three already."""

from llmendpoint_gateway.core.envoy.resources import PRIORITY_HEADER, Resource, extension, skipped_where

FILTER = "priority"


def make_priorities() -> Resource:
    """Must come after the picker, which reads the header."""
    return skipped_where(
        {
            "input": extension(
                "priority", "envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name=PRIORITY_HEADER
            ),
            "value_match": {"safe_regex": {"google_re2": {}, "regex": "(?i)low"}},
        },
        extension(
            FILTER,
            "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            mutations={"request_mutations": [{"remove": PRIORITY_HEADER}]},
        ),
    )
