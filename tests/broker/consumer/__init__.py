"""Our consumer against a broker that runs."""
