"""Who somebody is and what they may do: decisions over values, without a socket or a clock."""
