"""Deadlines by key; they live on the ground because transactions have them as well."""

from ottla.timers import Timers

__all__ = ["Timers"]
