"""``make demo-stream``: a year of flights as events through a stream, a follower, and a writer that is killed."""
