"""Ten profiles of which every choice is tried, and how far the advice is from the best of them."""
