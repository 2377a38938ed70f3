"""Classic groups: their members elect one of themselves, who assigns the partitions."""
