"""qwink compared with other engines. Adapters import only this package, `base` and their engine."""
