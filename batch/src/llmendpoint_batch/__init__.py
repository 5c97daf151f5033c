"""Files, batches and stored responses in OpenAI's shape: lines of a file become requests to endpoints, at the lowest priority."""
