"""The commands, by what they do to a table. Only click is loaded with them; the rest comes when one runs."""
