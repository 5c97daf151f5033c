module llmendpoint.io/testbed/pause

go 1.26.0
