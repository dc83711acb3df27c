"""A whole cluster on this machine: ZooKeeper servers and brokers as processes of their own."""
