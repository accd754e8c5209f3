"""The commands, grouped by what they do. Importing them imports click only; Arrow comes when a command runs."""
