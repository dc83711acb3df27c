"""The metadata store: a small tree of nodes with versions, in ZooKeeper's terms. Start reading at `api.py`."""
