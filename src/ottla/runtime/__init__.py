"""Clock, waiting and background work: what every running part needs and a simulation replaces."""
