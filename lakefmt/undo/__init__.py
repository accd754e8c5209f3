"""Going back: rollback of an instant, savepoint, restore."""
