"""What Kafka keeps in internal topics, control batches and state files, in the same notation as the messages."""
