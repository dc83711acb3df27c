"""What the controller decides, and the image of the cluster that everybody reads. Pure."""
