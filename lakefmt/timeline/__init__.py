"""What happened, in which order, and who may happen next."""
