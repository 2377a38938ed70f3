"""`make bench-groups`: what groups cost and how fast they settle, Apache Kafka and pybroker side by side. See __main__.py."""
