"""What the cluster is: image and delta, which every node reads, and the controller, which decides. Pure."""
