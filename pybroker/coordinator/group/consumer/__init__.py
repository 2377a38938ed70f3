"""Consumer groups (KIP-848): the coordinator assigns the partitions, and each member gets there at its own pace."""
