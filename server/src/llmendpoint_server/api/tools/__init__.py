"""What an answer's text holds: content, reasoning and tool calls, in the format that each family of models writes.

`readers` names the formats; `deltas` is what all of them give. Pure, except for the ids of calls.
"""
