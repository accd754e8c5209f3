"""How fast files come into tables, and what looking for them costs."""
