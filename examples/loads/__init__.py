"""Three clients load over HTTP, their server is killed between prepare and commit, and every row is there once."""
