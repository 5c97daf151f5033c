"""`/v1/messages` in Anthropic's shape, over the same generation as OpenAI's chats."""
