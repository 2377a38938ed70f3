"""Kafka's wire protocol: messages, their codecs, error codes and record batches. Pure: bytes in, objects out, and back."""
