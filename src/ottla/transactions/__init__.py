"""Transactions as their coordinator sees them: pure machines, one for each partition of `__transaction_state`."""
