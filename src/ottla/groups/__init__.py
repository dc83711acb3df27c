"""Groups of consumers and the offsets they commit: what the coordinator decides, without clock, network or disk."""
