"""The admin client: asking about a cluster and changing it, a module for each noun."""
