"""The transaction coordinator: pure shards of `__transaction_state`, one transaction at a time per transactional id."""
