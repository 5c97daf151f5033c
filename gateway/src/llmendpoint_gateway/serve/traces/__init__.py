"""Spans of requests. Off by default: then nothing of OpenTelemetry is imported."""
