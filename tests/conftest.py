"""What holds for all tests."""

from hypothesis import settings

# A busy machine and the address sanitizer are slow, and no property here is about time.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")
