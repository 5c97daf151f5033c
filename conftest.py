"""For all tests: hypothesis measures what is found, not how fast, for the machine may be busy with other tests."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
