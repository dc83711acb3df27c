"""The client: everything that talks to a cluster from outside. Asynchronous inside; `blocking` is for everybody else.

`producer`, `consumer` and `admin` are the clients; `metadata` knows who leads what and holds their connections, and
`fetching` reads ranges of partitions.
"""

from ottla.client import logs

logs.set_up()
