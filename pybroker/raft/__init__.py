"""The consensus under the metadata: KRaft's quorum as a pure machine, over Kafka's own messages."""
