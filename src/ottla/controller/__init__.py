"""The controller of a cluster: elected through the metadata store, it alone changes who holds and leads what."""
