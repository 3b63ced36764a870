"""The ladder: what each optimisation brings, from a plain service to qwink as it is."""
