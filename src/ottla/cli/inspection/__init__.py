"""Reads the files of a partition for people: what is in them, and with `verify` whether it is right.

Every file becomes a stream of findings, made as it is read: a segment in pieces of a few megabytes, an index
entry by entry. Damage is a finding as well, so one bad file hides nothing of the others. The formats are those
of `ottla.records` and `ottla.storage`; nothing is written, mended or locked, so the log may be in use.
"""
