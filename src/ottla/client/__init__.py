"""The client: everything that talks to a cluster from outside. Asynchronous inside; `blocking` is for everybody else.

`metadata` knows who leads what and holds the connections, `admin` asks and changes, `producing` and `fetching` move
batches of records.
"""
