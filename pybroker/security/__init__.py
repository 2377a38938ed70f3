"""Who somebody is and what they may do: the values and rules. Pure; what is stored of them is in `metadata`."""
