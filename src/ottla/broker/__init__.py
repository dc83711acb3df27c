"""The broker: partitions, request handlers, and the life of the process."""
