"""`qwink bench ladder`: the gain of each optimisation, from a plain service to qwink."""
