"""Where model files come from, what makes up a model, and how it is brought to a folder.

`plan` and `sigv4` are pure. `locate` finds the folder that `--model` of the server means; `__main__` is the command
`llmendpoint-model`.
"""
