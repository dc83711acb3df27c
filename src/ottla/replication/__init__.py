"""The rules of replication: who leads, what is committed, who reads what. Pure."""
