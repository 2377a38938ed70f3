"""How long a producer waits when a node of three dies: pybroker and Apache Kafka in one run (`make bench-failover`)."""
