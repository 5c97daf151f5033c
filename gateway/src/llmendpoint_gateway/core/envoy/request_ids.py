"""One request has one id: the caller's if it may be passed on, else a new one. It is set before anything reads it."""

from llmendpoint_gateway.core.envoy.resources import Resource, extension, skipped_where

ID = "x-request-id"
PASSED_ON = "[0-9A-Za-z_.:/+=@-]{1,128}"


def make_request_ids() -> Resource:
    return skipped_where(
        {
            "input": extension("id", "envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name=ID),
            "value_match": {"safe_regex": {"google_re2": {}, "regex": PASSED_ON}},
        },
        extension(
            "envoy.filters.http.header_mutation",
            "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            mutations={
                "request_mutations": [
                    {
                        "append": {
                            "header": {"key": ID, "value": "%UNIQUE_ID%"},
                            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                        }
                    }
                ]
            },
        ),
    )
