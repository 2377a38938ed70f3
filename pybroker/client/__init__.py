"""What this node asks of other nodes: `node_client.NodeClient` opens every outgoing connection and sends every request."""
