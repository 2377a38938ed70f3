"""The partitions of a broker: their leaders and followers, what fetches and produces wait for, fetch sessions."""
