"""`/v1/responses` in the shape of OpenAI's Responses API, over the same generation as chats. Nothing is stored."""
