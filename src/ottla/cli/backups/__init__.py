"""What `ottla backup` and `ottla restore` do: copy the directories of a broker, and verify what readers see in them."""
